// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// The checkpoint with the lowest validation loss of a run: `best.json` in the directory of its checkpoints, and a link
/// `best` to it for people and commands. Only one rank calls these.
namespace trireme::checkpoint {

struct Best {
  std::int64_t step = 0;
  double loss = 0;
  std::int64_t targets = 0;  ///< counted targets of the evaluation
  /// Identifies the evaluated data: files and settings. Losses of different data are not compared. Empty: unknown.
  std::string evaluated{};
  /// Whether the loss of `other` is over the same targets.
  [[nodiscard]] bool comparable(const Best& other) const {
    return evaluated == other.evaluated && targets == other.targets;
  }
  friend bool operator==(const Best&, const Best&) = default;
};

/// The best checkpoint in `directory` of a run that is at step `until`; nothing without it, or when its checkpoint is
/// gone.
[[nodiscard]] std::optional<Best> find_best(const std::string& directory, std::int64_t until);

/// Makes the committed checkpoint of `best.step` the best one; a kill in between leaves the one before. Warns if
/// there can be no link. Throws WriteError.
void mark_best(const std::string& directory, const Best& best);

/// Removes the mark, not the checkpoint.
void forget_best(const std::string& directory);

}  // namespace trireme::checkpoint

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/checkpoint/manifest.hpp"

/// A directory of checkpoints: `step-00000100/` is complete; what begins with a point is not, and never will be after
/// its writer is gone. Only one rank calls these.
namespace trireme::checkpoint {

/// "step-00000100".
[[nodiscard]] std::string step_name(std::int64_t step);

/// A directory that carries a checkpoint's name; complete or damaged.
struct Found {
  std::int64_t step = 0;
  std::string path;
};
/// All of them in `directory`, the newest first; none when there is no such directory. Throws CheckpointError when it
/// is none, ReadError.
[[nodiscard]] std::vector<Found> list_checkpoints(const std::string& directory);
/// For messages on a `path` that is not there: "in DIRECTORY there are step-..."; "" where there are none.
[[nodiscard]] std::string checkpoints_beside(const std::string& path);

/// Reads COMMIT, index.h5 against its checksum, and the manifest; looks for every shard file and its size. Throws
/// CheckpointError naming the file and what is wrong, ReadError when the system cannot read one.
[[nodiscard]] Manifest open_checkpoint(const std::string& path);
/// The same without the shard files: the writer of each checks it with `check_file`, so that no rank checks all of
/// them.
[[nodiscard]] Manifest open_manifest(const std::string& path);
void check_file(const std::string& path, const SavedFile& file);
/// Throws CheckpointError, with what to give instead, where `path` is nothing that a save began.
void require_checkpoint(const std::string& path);
/// The manifest, as the JSON that `parse_manifest` reads: for one rank that reads and many that receive it.
[[nodiscard]] std::string open_manifest_text(const std::string& path);
/// Where the manifest lies, for messages: "<path>/index.h5".
[[nodiscard]] std::string index_path(const std::string& path);

/// Removes files of interrupted saves and removals. The caller holds the directory's lock: else they may belong to
/// another run's save in progress. Warns of what cannot be removed.
void clean_leftovers(const std::string& directory);

/// Gives every checkpoint of a step after `step` another name, `set-aside-<n>-<its name>`: a run that went back to an
/// older one starts another future. Says so. Throws WriteError.
void set_aside_newer(const std::string& directory, std::int64_t step);

/// Removes one checkpoint, by another name first, so that a kill leaves no half of it. Warns of what cannot be removed.
void remove_checkpoint(const std::string& path);

/// Checkpoints that the run `run_id`, which has just saved `saved`, removes when it keeps its `keep` newest
/// checkpoints, those of every `keep_every`-th step (0: none) and that of step `best`. Only what this run committed
/// counts, and is among them. Checkpoints that end in skipped steps do not count in `keep`: the next save replaces
/// them. in_streak: `saved` is one of them, and replaces no others. Throws ReadError.
[[nodiscard]] std::vector<std::string> old_checkpoints(const std::string& saved, const std::string& run_id,
                                                       std::int64_t keep, std::int64_t keep_every,
                                                       std::int64_t best = -1, bool in_streak = false);

/// The newest checkpoint in `directory` up to `step` that does not end in skipped steps; "" where there is none. What
/// is damaged or cannot be read is left out.
[[nodiscard]] std::string newest_without_skipped_steps(const std::string& directory, std::int64_t step);

}  // namespace trireme::checkpoint

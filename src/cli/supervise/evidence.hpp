// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace trireme::cli {

/// Evidence of a failure in the standard error of a launcher and its ranks. Only the first attribution counts: later
/// ones are consequences, as a launcher kills the other ranks.
class Evidence {
 public:
  /// A line without its line end.
  void look(std::string_view line);

  /// Whether a line states that the job fails; the launcher should end soon.
  [[nodiscard]] bool failed() const { return failed_; }
  /// Nodes to which the failure is attributed.
  [[nodiscard]] const std::set<std::string>& nodes() const { return nodes_; }
  /// Whether the out-of-memory killer ended a rank.
  [[nodiscard]] bool out_of_memory() const { return out_of_memory_; }
  /// Nodes because of which the ranks saved and stopped: stragglers, by --exclude-stragglers.
  [[nodiscard]] const std::set<std::string>& stragglers() const { return stragglers_; }
  /// The line with the attribution, or that states the failure first.
  [[nodiscard]] const std::string& line() const { return line_; }

 private:
  void fail(std::string_view line);
  void name_ranks(std::string_view text, std::string_view line);
  void name(std::string_view node, std::string_view line);

  bool failed_ = false, named_ = false, ending_ = false, out_of_memory_ = false;
  std::set<std::string> nodes_, stragglers_;
  std::string line_;
};

}  // namespace trireme::cli

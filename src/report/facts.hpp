// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/report/run_record.hpp"

namespace trireme::report {

/// Settings and results of a run, a name and a text each; those missing from its files are left out.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> facts(const RunRecord& run);

/// Warnings for the reader.
[[nodiscard]] std::vector<std::string> warnings(const RunRecord& run);

/// The points of a series; none where the run has no such key.
[[nodiscard]] const Points& series(const RunRecord& run, const std::string& key);

/// The middle number; of the steps after the first three, which warm up, where there are more.
[[nodiscard]] double median(const Points& points);

}  // namespace trireme::report

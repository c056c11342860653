// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "trireme/report/run_record.hpp"

namespace trireme::report {

/// One HTML page about `runs`, side by side, that needs no network and no script: figures, curves, memory, traffic,
/// step times by rank and the timeline of a step; a table of several runs, best first. It includes the curves' numbers
/// as JSON (id "series"), thinned if a curve has more points than are visible. reload_seconds: reload interval in a
/// browser; 0 for a page that no longer changes.
[[nodiscard]] std::string page(std::span<const RunRecord> runs, int reload_seconds = 0);

/// Whether the run has done the steps of its run file.
[[nodiscard]] bool has_ended(const RunRecord& run);

}  // namespace trireme::report

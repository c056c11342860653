// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "trireme/report/run_record.hpp"

namespace trireme::report {

/// One HTML page about `runs`, side by side, that needs no network and no script: figures, curves, memory, traffic,
/// step times by rank and the timeline of a step; a table of several runs, best first. The numbers of the curves are
/// part of it as JSON, too (id "series"), thinned where a curve has more points than can be seen. reload_seconds: how
/// often a browser reloads the page; 0 for a page that no longer changes.
[[nodiscard]] std::string page(std::span<const RunRecord> runs, int reload_seconds = 0);

/// Whether the run has done the steps of its run file.
[[nodiscard]] bool has_ended(const RunRecord& run);

}  // namespace trireme::report

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "trireme/report/run_record.hpp"

namespace trireme::report {

/// One HTML page about `runs`, side by side, that needs no network and no script: facts, curves, memory, traffic, step
/// times by rank and the timeline of a step. The numbers of the curves stand in it as JSON, too (id "series"), thinned
/// where a curve has more points than can be seen.
[[nodiscard]] std::string page(std::span<const RunRecord> runs);

}  // namespace trireme::report

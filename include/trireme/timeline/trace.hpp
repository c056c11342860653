// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"
#include "trireme/timeline/timeline.hpp"

namespace trireme::timeline {

/// Measured spans as a Chrome trace (chrome://tracing, ui.perfetto.dev): a row a lane, times from the first span on.
[[nodiscard]] std::string chrome_trace(std::span<const timeline::Span> spans, const schedule::Schedule& schedule,
                                       const model::Model& model, int rank);

}  // namespace trireme::timeline

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"
#include "trireme/timeline/kernels.hpp"
#include "trireme/timeline/timeline.hpp"

namespace trireme::timeline {

/// Rank of a trace.
struct TraceProcess {
  int rank = 0;
  std::string name;          ///< "rank 3 on node7"
  Clock::time_point origin;  ///< time 0: the same moment on all ranks, so that their traces can be merged
  int pipeline_rank = 0;
  int pipeline_stride = 0;  ///< how far apart in `rank` two neighbours of a pipeline are
  int ranks = 1;            ///< of the job
};

/// Measured spans as a Chrome trace (chrome://tracing, ui.perfetto.dev): a row a lane of the process, and below
/// them a row for each stream of the GPU with its kernels (`kernels`, those since the first span). Messages of a
/// pipeline are flow events: laid together, the traces of its ranks have an arrow from every send to its receive. A
/// counter of memory is written at the first op of a step and where it changes. Each event has a category;
/// HolisticTraceAnalysis reads the rank from distributedInfo.
[[nodiscard]] std::string chrome_trace(std::span<const timeline::Span> spans, const schedule::Schedule& schedule,
                                       const model::Model& model, const TraceProcess& process,
                                       std::span<const Kernel> kernels = {});

}  // namespace trireme::timeline

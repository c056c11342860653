// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/model/chunks.hpp"
#include "trireme/schedule/op.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/pipeline/table.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {

/// Lists everything that is wrong with the lists of all pipeline ranks as one step; each list alone is checked by
/// `verify`. Empty: no rank can wait forever, for any assignment of lanes. Checked: every slot is filled, sent or taken
/// once (`verify_transfers`); between two ranks every edge, microbatch and direction is put, sent, received and taken
/// once, with the right peers, and none within a rank; the first op of a chunk reads the tensor taken for it, and the
/// last op's output is put; the steps have equal numbers of microbatches. Then the lists of two steps are merged as if
/// every op blocked until completion and nothing was buffered: a send and its receive complete together, and
/// `clip_norm` and sums over the pipeline when all their ranks have reached them. Lanes only relax the order, so lists
/// that end this way end on any lanes. Otherwise every blocked rank is listed with its op and its peer. Channels have
/// no tags (NCCL): a send matches the next receive.
[[nodiscard]] std::vector<std::string> verify_pipeline(std::span<const Schedule> lists,
                                                       std::span<const model::PipelinePart> parts,
                                                       const Pipeline& pipeline, Purpose purpose = Purpose::train,
                                                       Complete complete = {});

}  // namespace trireme::schedule

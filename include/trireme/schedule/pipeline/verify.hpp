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

/// Everything that is wrong with the lists of all pipeline ranks as one step; each by itself is `verify`'s. Empty: no
/// rank can wait forever, whatever its lanes do.
/// Checked: every slot is filled, sent or taken once (`verify_transfers`); between two ranks every edge, microbatch and
/// direction is put, sent, received and taken once, with the right peers, and none within a rank; the first op of a
/// chunk reads what was taken for it, and what its last op left is what is put; the steps have equal numbers of
/// microbatches. Then the lists of two steps are merged as if every op blocked until it was done and nothing was
/// buffered: a send and its receive pass together, and `clip_norm` and sums over the pipeline when all their ranks
/// stand there. Lanes only drop order, so lists that end so end on any lanes. Where they do not, every rank that stands
/// is named with its op and whom it waits for. Channels without tags (NCCL): a send meets the very next receive.
[[nodiscard]] std::vector<std::string> verify_pipeline(std::span<const Schedule> lists,
                                                       std::span<const model::PipelinePart> parts,
                                                       const Pipeline& pipeline, Purpose purpose = Purpose::train,
                                                       Complete complete = {});

}  // namespace trireme::schedule

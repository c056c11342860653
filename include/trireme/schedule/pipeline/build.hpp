// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/model/chunks.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/pipeline/order.hpp"

/// The steps of all pipeline ranks.
namespace trireme::schedule {

/// What each pipeline rank holds of the model.
[[nodiscard]] std::vector<model::PipelinePart> pipeline_parts(const model::Model& whole,
                                                              std::span<const model::Chunk> chunks,
                                                              const Pipeline& pipeline);

/// What the parts of each chunk cost, in FLOPs of one token: forward = input's gradient = weights', attention's
/// backward in input; the head's backward is whole and counted there. What the global order is made by.
[[nodiscard]] ActionCosts flop_costs(const model::Model& whole, std::span<const model::Chunk> chunks,
                                     std::int64_t seq_len);

/// A rank's list in stages: `take` stands before the first op of an action that reads it, `put` and `send` where the
/// order has the transfer, `receive` there in the other rank's list. In I and W transformer layers are split; the head
/// and the embedding run whole in I.
[[nodiscard]] Schedule compute_order(const model::PipelinePart& part, const Pipeline& pipeline, const RankOrder& order);

/// One training step of each pipeline rank, each verified alone and all of them together.
/// Throws BugError with what `verify_pipeline` finds wrong.
[[nodiscard]] std::vector<Schedule> build_pipeline(const std::vector<model::PipelinePart>& parts,
                                                   const Pipeline& pipeline, const ActionCosts& costs,
                                                   const Policy& policy);

/// One forward of each pipeline rank, for evaluation: one microbatch from the first chunk to the last. Verified alike.
[[nodiscard]] std::vector<Schedule> build_pipeline_forward(const std::vector<model::PipelinePart>& parts,
                                                           const Pipeline& pipeline, const Policy& policy);

/// The same without verification: for times of a step that nobody runs.
[[nodiscard]] std::vector<Schedule> build_pipeline_unverified(const std::vector<model::PipelinePart>& parts,
                                                              const Pipeline& pipeline, const ActionCosts& costs,
                                                              const Policy& policy);

}  // namespace trireme::schedule

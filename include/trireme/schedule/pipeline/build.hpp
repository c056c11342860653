// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/model/chunks.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/pipeline/order.hpp"

/// The steps of all pipeline ranks.
namespace trireme::schedule {

/// Each pipeline rank's part of the model.
[[nodiscard]] std::vector<model::PipelinePart> pipeline_parts(const model::Model& whole,
                                                              std::span<const model::Chunk> chunks,
                                                              const Pipeline& pipeline);

/// Costs of the parts of each chunk, in FLOPs of one token: forward = input gradient = weight gradients; attention's
/// backward counts as input; so does all of the head's. Determines the global order.
[[nodiscard]] ActionCosts flop_costs(const model::Model& whole, std::span<const model::Chunk> chunks,
                                     std::int64_t seq_len);

/// A rank's list in stages: `take` precedes the first op of an action that reads it, `put` and `send` are at the
/// transfer's place in the order, `receive` at the same place in the other rank's list. In I and W transformer layers
/// are split; the head and the embedding run whole in I.
[[nodiscard]] Schedule compute_order(const model::PipelinePart& part, const Pipeline& pipeline, const RankOrder& order);

/// One training step of each pipeline rank, each verified alone and all of them together. Throws BugError with the
/// mistakes found by `verify_pipeline`.
[[nodiscard]] std::vector<Schedule> build_pipeline(const std::vector<model::PipelinePart>& parts,
                                                   const Pipeline& pipeline, const ActionCosts& costs,
                                                   const Policy& policy);

/// One forward of each pipeline rank, for evaluation: one microbatch from the first chunk to the last. Also verified.
[[nodiscard]] std::vector<Schedule> build_pipeline_forward(const std::vector<model::PipelinePart>& parts,
                                                           const Pipeline& pipeline, const Policy& policy);

/// The same without verification: for predictions of times.
[[nodiscard]] std::vector<Schedule> build_pipeline_unverified(const std::vector<model::PipelinePart>& parts,
                                                              const Pipeline& pipeline, const ActionCosts& costs,
                                                              const Policy& policy);

}  // namespace trireme::schedule

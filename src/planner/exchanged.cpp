// SPDX-License-Identifier: Apache-2.0
#include "planner/exchanged.hpp"

#include "trireme/base/error.hpp"
#include "trireme/model/context.hpp"
#include "trireme/model/tensor_plan.hpp"

namespace trireme::planner {

using schedule::Exchange;

std::int64_t exchanged_elements(const schedule::Exchanged& op, const model::Model& model,
                                const ReplayOptions& replay_options) {
  const std::int64_t tokens = replay_options.tokens;
  switch (op.kind) {
    case Exchange::gather_sequence:
    case Exchange::scatter_sequence:
    case Exchange::all_reduce_activation: return tokens * model.sizes.hidden;
    case Exchange::all_reduce_statistics: return 2 * tokens;
    case Exchange::gather_vocabulary: return 3 * tokens * model.part.ranks;
    case Exchange::gather_keys:
    case Exchange::scatter_keys: return tokens * model.part.context.ranks * model::gathered_width(model.held);
    case Exchange::to_heads:
    case Exchange::to_tokens: return tokens * model::exchanged_width(model, op.block, op.segment);
    case Exchange::sum_loads: return replay_options.sequences * model.sizes.decoder.experts->count;
    case Exchange::exchange_counts: return model.sizes.decoder.experts->count;
    case Exchange::dispatch:
    case Exchange::combine: break;
  }
  throw BugError("the number of rows that experts receive is no size of the model");
}

int ranks_of(mesh::Group group, const model::TensorPart& part) {
  if (group == mesh::Group::tensor) return part.ranks;
  if (group == mesh::Group::context) return part.context.ranks;
  if (group == mesh::Group::sequence) return part.context.ranks * part.ranks;
  invariant(group == mesh::Group::expert, "stages exchange over tensor, context or expert ranks");
  return part.experts.ranks;
}

}  // namespace trireme::planner

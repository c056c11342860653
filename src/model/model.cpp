// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/model.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "trireme/model/tensor_plan.hpp"

namespace trireme::model {

std::int64_t Parameter::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<std::int64_t> Parameter::full_shape() const {
  std::vector<std::int64_t> full = shape;
  if (partition && partition->split != Split::replicated)
    full[partition->split == Split::row ? 1 : 0] = partition->full;
  return full;
}

std::int64_t Parameter::full_elements() const {
  const std::vector<std::int64_t> full = full_shape();
  return std::accumulate(full.begin(), full.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t Model::elements() const {
  std::int64_t sum = 0;
  for (const ParameterBlock& block : parameter_blocks) {
    for (const Parameter& parameter : block.parameters) sum += parameter.full_elements();
  }
  return sum;
}

std::optional<ParamRef> Model::find(std::string_view name) const {
  for (int b = 0; b < param_blocks(); ++b) {
    const ParamBlock block{b};
    const std::vector<Parameter>& parameters = (*this)[block].parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].name == name) return ParamRef{.block = block, .index = static_cast<int>(i)};
    }
  }
  return std::nullopt;
}

bool divides_experts(const Model& model) {
  return std::ranges::any_of(model.parameter_blocks, &ParameterBlock::of_experts);
}

bool sums_loads(const Model& model) {
  return std::ranges::any_of(model.compute_blocks, [](const ComputeBlock& block) {
    return std::ranges::any_of(block.stages, &Stage::sums_loads);
  });
}

Model build(const config::Model& config, const TensorPart& part) {
  return choose_fp8(divide_experts(divide_sequences(partition(build(config), part), part.context), part.experts),
                    part.fp8);
}

}  // namespace trireme::model

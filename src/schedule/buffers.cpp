// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/buffers.hpp"

#include <algorithm>

namespace trireme::schedule {

std::vector<int> rings(const model::Model& model) {
  std::vector<int> out;
  std::vector<const model::ParameterBlock*> first;  // of each ring
  for (const model::ParameterBlock& block : model.parameter_blocks) {
    const auto found = std::find_if(first.begin(), first.end(), [&](const model::ParameterBlock* other) {
      return block.parameters.size() == other->parameters.size() &&
             std::ranges::equal(block.parameters, other->parameters, {}, &model::Parameter::shape,
                                &model::Parameter::shape);
    });
    out.push_back(static_cast<int>(found - first.begin()));
    if (found == first.end()) first.push_back(&block);
  }
  return out;
}

std::optional<int> reshard_group(const Schedule& schedule) {
  for (const Op& op : schedule.ops)
    if (const auto* reshard = std::get_if<Reshard>(&op); reshard != nullptr && reshard->to) return reshard->to;
  return std::nullopt;
}

bool has_partial(const Schedule& schedule) {
  return std::any_of(schedule.ops.begin(), schedule.ops.end(), [](const Op& op) {
    const auto* reduce = std::get_if<ReduceScatter>(&op);
    return reduce != nullptr && reduce->partial;
  });
}

std::vector<OnHost> on_host(const Schedule& schedule, const model::Model& model) {
  std::vector<OnHost> out(static_cast<std::size_t>(model.param_blocks()), OnHost::nothing);
  for (const Op& op : schedule.ops)
    if (const auto* upload = std::get_if<Upload>(&op))
      out[static_cast<std::size_t>(upload->block.value)] = upload->staged ? OnHost::parameters : OnHost::optimizer;
  return out;
}

std::vector<bool> transient_gradients(const Schedule& schedule, const model::Model& model) {
  std::vector<bool> out(static_cast<std::size_t>(model.param_blocks()));
  for (const Op& op : schedule.ops)
    if (const auto* allocate = std::get_if<AllocateGradient>(&op))
      out[static_cast<std::size_t>(allocate->block.value)] = true;
  return out;
}

RingSizes ring_sizes(const Schedule& schedule, const model::Model& model) {
  const std::vector<int> ring_of = rings(model);
  const auto count = static_cast<std::size_t>(*std::max_element(ring_of.begin(), ring_of.end()) + 1);
  const std::vector<int> none(count, 0);
  RingSizes sizes{none, none, none, none};
  const auto grow = [](std::vector<int>& ring, Slot slot) {
    int& size = ring[static_cast<std::size_t>(slot.ring)];
    size = std::max(size, slot.index + 1);
  };
  for (const Op& op : schedule.ops) {
    if (const auto* unshard = std::get_if<Unshard>(&op); unshard != nullptr && !unshard->in_place)
      grow(sizes.parameters, unshard->slot);
    if (const auto* upload = std::get_if<Upload>(&op); upload != nullptr && upload->staged)
      grow(sizes.uploads, *upload->staged);
    if (const auto* offload = std::get_if<OffloadGradient>(&op)) grow(sizes.downloads, offload->slot);
    if (const auto* put = std::get_if<Put>(&op)) sizes.sends = std::max(sizes.sends, put->slot.index + 1);
    if (const auto* receive = std::get_if<Receive>(&op))
      sizes.receives = std::max(sizes.receives, receive->slot.index + 1);
    if (const auto* backward = std::get_if<Backward>(&op))
      for (const GradientTarget& target : backward->gradients)
        if (!target.in_place) grow(sizes.gradients, target.slot);
  }
  return sizes;
}

}  // namespace trireme::schedule

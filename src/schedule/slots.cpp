// SPDX-License-Identifier: Apache-2.0
// Buffer assignment: which ring buffer holds what, and when it is free again.
#include <algorithm>
#include <deque>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/schedule/concerns.hpp"
#include "trireme/schedule/passes.hpp"

namespace trireme::schedule {
namespace {

/// Buffers of every ring, handed out least recently freed first.
class Pool {
 public:
  explicit Pool(std::size_t rings_in_all) : free_(rings_in_all), size_(rings_in_all, 0) {}

  void grow(int ring) { free_[at(ring)].push_back(size_[at(ring)]++); }

  Slot take(int ring) {
    if (free_[at(ring)].empty()) grow(ring);
    const int index = free_[at(ring)].front();
    free_[at(ring)].pop_front();
    return {ring, index};
  }
  void give_back(Slot slot) { free_[at(slot.ring)].push_back(slot.index); }

 private:
  static std::size_t at(int ring) { return static_cast<std::size_t>(ring); }
  std::vector<std::deque<int>> free_;
  std::vector<int> size_;
};

struct Assign {
  const std::vector<int>& ring_of;
  Pool parameters;
  Pool gradients;
  Pool uploads;
  Pool downloads;
  std::map<ParamBlock, Slot> parameter_slot{};
  std::map<ParamBlock, Slot> gradient_slot{};
  std::map<ParamBlock, Slot> upload_slot{};
  std::map<ParamBlock, Slot> download_slot{};

  [[nodiscard]] int ring(ParamBlock block) const { return ring_of[static_cast<std::size_t>(block.value)]; }

  void operator()(Unshard& op) {
    op.slot = parameter_slot[op.block] = parameters.take(ring(op.block));
    if (op.staged) uploads.give_back(*(op.staged = upload_slot.at(op.block)));
  }
  void operator()(Upload& op) {
    if (op.staged) op.staged = upload_slot[op.block] = uploads.take(ring(op.block));
  }
  void operator()(Reshard& op) {
    parameters.give_back(parameter_slot.at(op.block));
    parameter_slot.erase(op.block);
  }
  void operator()(Backward& op) {
    for (GradientTarget& target : op.gradients) {
      const auto held = gradient_slot.find(target.block);
      target.slot =
          held != gradient_slot.end() ? held->second : gradient_slot[target.block] = gradients.take(ring(target.block));
    }
  }
  void operator()(ReduceScatter& op) {
    op.slot = gradient_slot.at(op.block);
    gradients.give_back(op.slot);
    gradient_slot.erase(op.block);
    if (op.staged) op.staged = download_slot[op.block] = downloads.take(ring(op.block));
  }
  void operator()(AllReduce& op) {
    if (op.staged) op.staged = download_slot.at(op.block);
  }
  void operator()(OffloadGradient& op) { downloads.give_back(op.slot = download_slot.at(op.block)); }
  template <class Other>
  requires(!takes_slot<Other>) void operator()(Other&) {}
};

}  // namespace

std::vector<int> rings(const model::Model& model) {
  std::vector<int> out;
  std::vector<std::vector<std::vector<std::int64_t>>> known;
  for (const model::ParameterBlock& block : model.parameter_blocks) {
    std::vector<std::vector<std::int64_t>> shapes;
    for (const model::Parameter& parameter : block.parameters) shapes.push_back(parameter.shape);
    const auto found = std::find(known.begin(), known.end(), shapes);
    out.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) known.push_back(std::move(shapes));
  }
  return out;
}

Schedule assign_slots(Schedule schedule, const model::Model& model) {
  const std::vector<int> ring_of = rings(model);
  const auto count = static_cast<std::size_t>(*std::max_element(ring_of.begin(), ring_of.end()) + 1);
  Assign assign{.ring_of = ring_of,
                .parameters = Pool(count),
                .gradients = Pool(count),
                .uploads = Pool(count),
                .downloads = Pool(count)};
  // Two buffers where blocks share a ring: one is reduced or copied while the next block's backward, sum or copy fills
  // the other.
  for (std::size_t ring = 0; ring < count; ++ring)
    for (std::ptrdiff_t i = 0;
         i < std::min<std::ptrdiff_t>(2, std::count(ring_of.begin(), ring_of.end(), static_cast<int>(ring))); ++i)
      for (Pool* pool : {&assign.gradients, &assign.uploads, &assign.downloads}) pool->grow(static_cast<int>(ring));
  for (Op& op : schedule.ops) std::visit(assign, op);
  return schedule;
}

std::optional<int> copy_group(const Schedule& schedule) {
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
    if (const auto* unshard = std::get_if<Unshard>(&op)) grow(sizes.parameters, unshard->slot);
    if (const auto* upload = std::get_if<Upload>(&op); upload != nullptr && upload->staged)
      grow(sizes.uploads, *upload->staged);
    if (const auto* offload = std::get_if<OffloadGradient>(&op)) grow(sizes.downloads, offload->slot);
    if (const auto* backward = std::get_if<Backward>(&op))
      for (const GradientTarget& target : backward->gradients) grow(sizes.gradients, target.slot);
  }
  return sizes;
}

}  // namespace trireme::schedule

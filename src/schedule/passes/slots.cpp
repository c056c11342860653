// SPDX-License-Identifier: Apache-2.0
// Buffer assignment: the contents of each ring buffer, and when it is free again.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "trireme/base/error.hpp"
#include "trireme/schedule/buffers.hpp"
#include "trireme/schedule/concerns.hpp"
#include "trireme/schedule/passes/passes.hpp"

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
  Pool sends;
  Pool receives;
  std::map<std::tuple<Edge, Microbatch, Phase>, Slot> sent{}, received{};
  std::map<ParamBlock, Slot> parameter_slot{};
  std::map<ParamBlock, Slot> gradient_slot{};
  std::map<ParamBlock, Slot> upload_slot{};
  std::map<ParamBlock, Slot> download_slot{};

  [[nodiscard]] int ring(ParamBlock block) const { return ring_of[static_cast<std::size_t>(block.value)]; }

  void operator()(Unshard& op) {
    if (op.in_place) return;
    op.slot = parameter_slot[op.block] = parameters.take(ring(op.block));
    if (op.staged) uploads.give_back(*(op.staged = upload_slot.at(op.block)));
  }
  void operator()(Upload& op) {
    if (op.staged) op.staged = upload_slot[op.block] = uploads.take(ring(op.block));
  }
  void operator()(Reshard& op) {
    const auto held = parameter_slot.find(op.block);
    if (held == parameter_slot.end()) return;  // in place
    parameters.give_back(held->second);
    parameter_slot.erase(held);
  }
  void operator()(Backward& op) {
    for (GradientTarget& target : op.gradients) {
      if (target.in_place) continue;
      const auto held = gradient_slot.find(target.block);
      target.slot =
          held != gradient_slot.end() ? held->second : gradient_slot[target.block] = gradients.take(ring(target.block));
    }
  }
  void operator()(ReduceScatter& op) {
    if (op.in_place) return;
    op.slot = gradient_slot.at(op.block);
    gradients.give_back(op.slot);
    gradient_slot.erase(op.block);
    if (op.staged) op.staged = download_slot[op.block] = downloads.take(ring(op.block));
  }
  void operator()(AllReduce& op) {
    if (op.staged) op.staged = download_slot.at(op.block);
  }
  void operator()(Put& op) { op.slot = sent[{op.edge, op.microbatch, op.phase}] = sends.take(0); }
  void operator()(Send& op) { sends.give_back(op.slot = sent.at({op.edge, op.microbatch, op.phase})); }
  void operator()(Receive& op) { op.slot = received[{op.edge, op.microbatch, op.phase}] = receives.take(0); }
  void operator()(Take& op) { receives.give_back(op.slot = received.at({op.edge, op.microbatch, op.phase})); }
  void operator()(OffloadGradient& op) { downloads.give_back(op.slot = download_slot.at(op.block)); }
  template <class Other>
  requires(!takes_slot<Other>) void operator()(Other&) {}
};

}  // namespace

Schedule assign_slots(Schedule schedule, const model::Model& model) {
  const std::vector<int> ring_of = rings(model);
  const auto count = static_cast<std::size_t>(*std::max_element(ring_of.begin(), ring_of.end()) + 1);
  Assign assign{.ring_of = ring_of,
                .parameters = Pool(count),
                .gradients = Pool(count),
                .uploads = Pool(count),
                .downloads = Pool(count),
                .sends = Pool(1),
                .receives = Pool(1)};
  // One is sent while the next is put into the other.
  for (int i = 0; i < 2; ++i) assign.sends.grow(0);
  // Two buffers where blocks share a ring: one is reduced or copied while the next block's backward, sum or copy fills
  // the other.
  for (std::size_t ring = 0; ring < count; ++ring)
    for (std::ptrdiff_t i = 0;
         i < std::min<std::ptrdiff_t>(2, std::count(ring_of.begin(), ring_of.end(), static_cast<int>(ring))); ++i)
      for (Pool* pool : {&assign.gradients, &assign.uploads, &assign.downloads}) pool->grow(static_cast<int>(ring));
  for (Op& op : schedule.ops) std::visit(assign, op);
  return schedule;
}

}  // namespace trireme::schedule

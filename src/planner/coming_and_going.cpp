// SPDX-License-Identifier: Apache-2.0
#include "planner/coming_and_going.hpp"

#include <algorithm>
#include <set>

namespace trireme::planner {
namespace {

/// `sum` where `value` is highest: the largest of those, if it is so several times.
void note_at_peak(Bytes value, Bytes& peak, Bytes sum, Bytes& at_peak) {
  at_peak = value > peak ? sum : value == peak ? std::max(at_peak, sum) : at_peak;
  peak = std::max(peak, value);
}

}  // namespace

ComingAndGoing::ComingAndGoing(const schedule::Schedule& schedule, const shard::Layout& layout, Bytes kept)
    : layout_(layout), gradients_(kept) {
  // A gradient that is freed before it is allocated is carried over from the previous step.
  std::set<ParamBlock> allocated;
  for (const schedule::Op& op : schedule.ops) {
    if (const auto* allocate = std::get_if<schedule::AllocateGradient>(&op)) allocated.insert(allocate->block);
    const auto* free = std::get_if<schedule::FreeGradient>(&op);
    if (free != nullptr && !allocated.contains(free->block)) gradients_ += bytes(free->block);
  }
}

void ComingAndGoing::during(const schedule::Op& op, Bytes activations, AtOnce& at_once) {
  if (const auto* allocate = std::get_if<schedule::AllocateGradient>(&op)) gradients_ += bytes(allocate->block);
  const Bytes both = gradients_ + activations;
  if (both > at_once.most) {
    at_once.most = both;
    at_once.op = op_;
  }
  note_at_peak(activations, most_activations_, both, at_once.with_most_activations);
  note_at_peak(gradients_, most_gradients_, both, at_once.with_most_gradients);
  if (const auto* free = std::get_if<schedule::FreeGradient>(&op)) gradients_ = gradients_ - bytes(free->block);
  ++op_;
}

}  // namespace trireme::planner

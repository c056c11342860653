// SPDX-License-Identifier: Apache-2.0
#include "train/setup/op_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "trireme/mpi/abort.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::train {

void OpWatch::watch(const schedule::Schedule& schedule, const model::Model& model) {
  for (const schedule::Access& access : schedule::accesses(schedule, model))
    updates_.push_back(std::ranges::any_of(access.writes, [](const schedule::Resource& resource) {
      return std::holds_alternative<schedule::resource::MasterShard>(resource);
    }));
  for (const schedule::Op& op : schedule.ops) {
    texts_.push_back(schedule::print(op, model));
    computes_.push_back(schedule::lane_of(op) == schedule::Lane::compute);
  }
}

void OpWatch::begins(int op, std::int64_t step) {
  mpi::doing(fmt::format("{}, step {}", text(op), first_step_ + step + 1));
  if (computes_[static_cast<std::size_t>(op)]) supervision_.mark(text(op), step);
}

}  // namespace trireme::train

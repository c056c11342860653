// SPDX-License-Identifier: Apache-2.0
//
// Schedules as text: one op per line.
#include <fmt/format.h>

#include "trireme/base/hash.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {

std::string print(const Schedule& schedule, const model::Model& model) {
  std::string text = fmt::format("step microbatches={}\n", schedule.microbatches);
  for (const Op& op : schedule.ops) text += print(op, model) + "\n";
  return text;
}

std::uint64_t hash(const Schedule& schedule, const model::Model& model) { return fnv1a(print(schedule, model)); }

}  // namespace trireme::schedule

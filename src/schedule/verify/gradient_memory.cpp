// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "trireme/schedule/access.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {

std::vector<std::string> verify_gradient_memory(const Schedule& schedule, const model::Model& model) {
  std::map<ParamBlock, bool> held;  // by block with transient shards; at the step's begin those that it frees first
  for (const Op& op : schedule.ops) {
    if (const auto* allocate = std::get_if<AllocateGradient>(&op)) held.emplace(allocate->block, false);
    if (const auto* free = std::get_if<FreeGradient>(&op)) held.emplace(free->block, true);
  }
  if (held.empty()) return {};
  const std::map<ParamBlock, bool> at_begin = held;
  std::set<ParamBlock> updated;
  std::vector<std::string> wrong;
  const std::vector<Access> access = accesses(schedule, model);
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const Op& op = schedule.ops[i];
    const auto complain = [&](std::string_view what, ParamBlock block) {
      wrong.push_back(fmt::format("op {} `{}`: {} {}", i, print(op, model), what, model[block].name));
    };
    if (const auto* allocate = std::get_if<AllocateGradient>(&op)) {
      if (std::exchange(held.at(allocate->block), true))
        complain("allocates a second gradient shard of", allocate->block);
      continue;
    }
    if (const auto* free = std::get_if<FreeGradient>(&op)) {
      if (!std::exchange(held.at(free->block), false)) complain("frees no gradient shard of", free->block);
      if (!at_begin.at(free->block) && !updated.contains(free->block))
        complain("frees before its update the gradient shard of", free->block);
      continue;
    }
    if (const auto* update = std::get_if<Update>(&op)) updated.insert(update->block);
    for (const auto* resources : {&access[i].reads, &access[i].writes})
      for (const Resource& resource : *resources) {
        const auto* shard = std::get_if<resource::GradientShard>(&resource);
        if (shard == nullptr) continue;
        const auto found = held.find(shard->block);
        if (found == held.end() || found->second) continue;
        complain("has no memory for the gradient shard of", shard->block);
        found->second = true;  // reported once
      }
  }
  for (const auto& [block, is_held] : held)
    if (is_held != at_begin.at(block))
      wrong.push_back(fmt::format("end of step: the gradient shard of {} {}", model[block].name,
                                  is_held ? "is not freed" : "is freed and never allocated"));
  return wrong;
}

}  // namespace trireme::schedule

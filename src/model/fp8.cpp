// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/fp8.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/config/names.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model {
namespace {

/// The first weight of the product that multiplies a weight of this role.
Role product_of(Role role) {
  switch (role) {
    case Role::k:
    case Role::v: return Role::q;
    case Role::up: return Role::gate;
    case Role::shared_up: return Role::shared_gate;
    case Role::expert_up: return Role::expert_gate;
    default: return role;
  }
}

/// A weight of a stage, and whether it is excluded.
struct Weight {
  const Parameter* parameter;
  bool skipped;
};
using Product = std::vector<Weight>;

/// "*.q_proj.weight": of every layer.
std::string glob_of(const std::string& name) {
  const std::size_t last = name.rfind('.');
  const std::size_t before = last == std::string::npos || last == 0 ? std::string::npos : name.rfind('.', last - 1);
  return before == std::string::npos ? name : "*" + name.substr(before);
}

bool skipped(const Fp8Choice& choice, const Parameter& parameter) {
  return std::ranges::any_of(choice.skip, [&](const std::string& glob) { return glob_match(glob, parameter.name); });
}

class Choosing {
 public:
  explicit Choosing(const Fp8Choice& choice) : choice_(choice) {}

  void choose(const Model& model, Stage& stage) {
    std::map<Role, Product> products;
    for (const ParamRef ref : stage.parameters) {
      const Parameter& parameter = model[ref];
      if (may_be_fp8(parameter.role))
        products[product_of(parameter.role)].push_back({&parameter, skipped(choice_, parameter)});
    }
    for (const auto& [first, weights] : products) {
      const bool skipped = weights.front().skipped;
      check_together(first, weights);
      if (skipped) continue;
      for (const Weight& weight : weights) {
        check_sizes(weight, weights);
        if (std::ranges::find(stage.fp8.roles, weight.parameter->role) == stage.fp8.roles.end())
          stage.fp8.roles.push_back(weight.parameter->role);
      }
      stage.fp8.recipe = choice_.recipe;
    }
  }

  void finish() const { mistakes_.raise("precision.fp8 does not fit the model"); }

 private:
  void check_together(Role first, const Product& weights) {
    const auto other = std::ranges::find(weights, !weights.front().skipped, &Weight::skipped);
    if (other == weights.end() || !told_.insert(first).second) return;
    const Parameter& skipped = *(other->skipped ? *other : weights.front()).parameter;
    const Parameter& kept = *(other->skipped ? weights.front() : *other).parameter;
    mistakes_.add(
        fmt::format("precision.fp8_skip: skips {} but not {}, which the same product, or the same product of another "
                    "expert, multiplies; skip both or none",
                    skipped.name, kept.name));
  }

  void check_sizes(const Weight& weight, const Product& product) {
    const std::int64_t multiple = fp8_multiple(choice_.recipe);
    const Parameter& parameter = *weight.parameter;
    const auto divides = [&](std::int64_t size) { return size % multiple == 0; };
    if (std::ranges::all_of(parameter.shape, divides) || !told_of_size_.insert(parameter.role).second) return;
    std::set<std::string> globs;
    for (const Weight& each : product) globs.insert(fmt::format("\"{}\"", glob_of(each.parameter->name)));
    mistakes_.add(fmt::format(
        "precision.fp8: {} is {}{}, but \"{}\" requires multiples of {}; set such sizes, or precision.fp8_skip "
        "= [{}]",
        parameter.name, fmt::join(parameter.shape, " x "),
        parameter.shape == parameter.full_shape() ? "" : " on a tensor rank", config::to_text(choice_.recipe), multiple,
        fmt::join(globs, ", ")));
  }

  const Fp8Choice& choice_;
  std::set<Role> told_, told_of_size_;  ///< of which a layer has been reported
  Mistakes mistakes_;
};

}  // namespace

Fp8 Fp8Products::of(Role role) const { return std::ranges::find(roles, role) == roles.end() ? Fp8::none : recipe; }

bool may_be_fp8(Role role) {
  switch (role) {
    case Role::q:
    case Role::k:
    case Role::v:
    case Role::qkv:
    case Role::q_b:  // not q_a, kv_a and kv_b: tensor and context ranks have parts of their outputs' gradients
    case Role::o:
    case Role::gate:
    case Role::up:
    case Role::down:
    case Role::shared_gate:
    case Role::shared_up:
    case Role::shared_down:
    case Role::expert_gate:
    case Role::expert_up:
    case Role::expert_down: return true;
    default: return false;
  }
}

void check_fp8_skip(const Model& model, const Fp8Choice& choice) {
  if (choice.recipe == Fp8::none) return;
  std::vector<std::string_view> names;
  for (const ParameterBlock& block : model.parameter_blocks)
    for (const Parameter& parameter : block.parameters)
      if (may_be_fp8(parameter.role)) names.emplace_back(parameter.name);
  Mistakes mistakes;
  for (const std::string& glob : choice.skip)
    if (std::ranges::none_of(names, [&](std::string_view name) { return glob_match(glob, name); }))
      mistakes.add(fmt::format(
          "precision.fp8_skip: \"{}\" fits no weight of attention, MLP or experts; correct or remove it", glob));
  const bool all = std::ranges::none_of(model.compute_blocks, [](const ComputeBlock& block) {
    return std::ranges::any_of(block.stages, [](const Stage& stage) { return stage.fp8.recipe != Fp8::none; });
  });
  if (all) mistakes.add("precision.fp8_skip: skips every product; skip fewer, or set precision.fp8 = \"none\"");
  mistakes.raise("precision.fp8 does not fit the model");
}

Model choose_fp8(Model model, const Fp8Choice& choice) {
  if (choice.recipe == Fp8::none) return model;
  Choosing choosing(choice);
  for (ComputeBlock& block : model.compute_blocks)
    for (Stage& stage : block.stages) choosing.choose(model, stage);
  choosing.finish();
  return model;
}

}  // namespace trireme::model

// SPDX-License-Identifier: Apache-2.0
#include "trireme/optimizer/muon.hpp"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::optimizer {
namespace {

/// Whether parameters of a role are matrices of layers.
bool is_matrix(model::Role role) {
  using enum model::Role;
  switch (role) {
    case q:
    case k:
    case v:
    case qkv:
    case q_a:
    case q_b:
    case kv_a:
    case kv_b:
    case o:
    case gate:
    case up:
    case down:
    case router:
    case shared_gate:
    case shared_up:
    case shared_down:
    case expert_gate:
    case expert_up:
    case expert_down: return true;
    case embedding:
    case positions:
    case attention_norm:
    case attention_norm_bias:
    case q_bias:
    case k_bias:
    case v_bias:
    case qkv_bias:
    case q_norm:
    case k_norm:
    case q_a_norm:
    case kv_a_norm:
    case o_bias:
    case attention_post_norm:
    case mlp_norm:
    case mlp_norm_bias:
    case gate_bias:
    case up_bias:
    case down_bias:
    case mlp_post_norm:
    case router_bias:
    case shared_weight:  // one row
    case final_norm:
    case final_norm_bias:
    case head: return false;
  }
  throw BugError("Muon has no rule for a role");
}

}  // namespace

double muon_scale(MuonScale scale, std::int64_t rows, std::int64_t columns) {
  const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
  switch (scale) {
    case MuonScale::moonlight: return 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
    case MuonScale::jordan: return std::sqrt(std::max(1.0, ratio));
    case MuonScale::spectral: return std::sqrt(ratio);
  }
  throw BugError("a scale of Muon has no formula");
}

std::array<NewtonSchulzStep, 5> newton_schulz_steps(NewtonSchulz set) {
  if (set == NewtonSchulz::jordan) {
    constexpr NewtonSchulzStep step{.a = 3.4445, .b = -4.7750, .c = 2.0315};
    return {step, step, step, step, step};
  }
  std::array<NewtonSchulzStep, 5> steps{{{8.28721201814563, -23.595886519098837, 17.300387312530933},
                                         {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                                         {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                                         {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                                         {2.300652019954817, -1.6689039845747493, 0.4188073119525673}}};
  constexpr double safety = 1.01;
  for (NewtonSchulzStep& step : steps)
    step = {.a = step.a / safety, .b = step.b / std::pow(safety, 3), .c = step.c / std::pow(safety, 5)};
  return steps;
}

bool takes_muon(const model::Parameter& parameter, std::span<const std::string> adamw) {
  return is_matrix(parameter.role) &&
         std::ranges::none_of(adamw, [&](const std::string& glob) { return glob_match(glob, parameter.name); });
}

}  // namespace trireme::optimizer

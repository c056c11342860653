// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "trireme/config/run_config.hpp"
#include "trireme/model/model.hpp"

/// Muon (Jordan 2024; Moonlight, Liu et al. 2025) as values: its parameters, and the numbers of its iterations.
namespace trireme::optimizer {

using config::MuonScale, config::NewtonSchulz;

/// moonlight: 0.2 sqrt(max(rows, columns)); jordan: sqrt(max(1, rows / columns)); spectral: sqrt(rows / columns).
[[nodiscard]] double muon_scale(MuonScale scale, std::int64_t rows, std::int64_t columns);

/// Coefficients of one iteration, X = a X + (b X X^T + c (X X^T)^2) X.
struct NewtonSchulzStep {
  double a, b, c;
};
[[nodiscard]] std::array<NewtonSchulzStep, 5> newton_schulz_steps(NewtonSchulz set);

/// Whether Muon updates a parameter: a matrix of a layer that matches no glob of `adamw`. The others are AdamW's:
/// embedding, head, norms, biases and the weights of gated shared experts.
[[nodiscard]] bool takes_muon(const model::Parameter& parameter, std::span<const std::string> adamw);

}  // namespace trireme::optimizer

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <cstdint>
#include <functional>
#include <span>

#include "trireme/optim/team.hpp"
#include "trireme/optimizer/muon.hpp"

/// Muon (Jordan 2024, as torch.optim.Muon), in the parts that ranks with shards of matrices, and their owners, run.
namespace trireme::optim {

/// The numbers of one update.
struct MuonStep {
  double lr = 0;
  double momentum = 0.95;
  bool nesterov = true;
  double gradient_factor = 1;
};

/// Consecutive elements of a shard that Muon updates: their place in the rank's messages, and numbers of their matrix.
struct MatrixRange {
  std::int64_t offset = 0;  ///< in the shard
  std::int64_t place = 0;
  std::int64_t elements = 0;
  double scale = 1;
  double weight_decay = 0;
};

/// Momentum of the elements in `ranges`, and what is orthogonalized:
///   g = gradient * gradient_factor;  m += (1 - momentum)(g - m);  u = nesterov ? m + (1 - momentum)(g - m) : m
/// gradient, m: fp32 [shard_elements]. messages: fp32 or bf16, receives u at its places. The same bits on any number
/// of threads.
void prepare_matrices(const MuonStep& step, std::span<const MatrixRange> ranges, std::span<const float> gradient,
                      std::span<float> m, const at::Tensor& messages, const Team& team = {});

/// The orthogonalized [rows, columns] of `u`, fp32 or bf16, by Newton-Schulz iterations in its type, from u / max(|u|,
/// 1e-7). In fp32 by our own products: the same bits on any number of threads. In bf16 by libtorch, with the norm
/// rounded to bf16: the bits of torch.optim.Muon; call it on one thread.
[[nodiscard]] at::Tensor orthogonalized(const at::Tensor& u, std::span<const optimizer::NewtonSchulzStep> steps,
                                        const Team& team = {});

/// Calls `run(i)` for i in [0, n), where the results are in bf16 on all threads of a team, each one a thread.
void for_matrices(const Team& team, DType type, std::int64_t n, const std::function<void(std::int64_t)>& run);

/// Masters of an update: fp32 with a bf16 copy that may be empty, or split (store/masters.hpp) into the copy and a
/// remainder. [shard_elements] each.
struct MuonMasters {
  std::span<float> master;
  std::span<c10::BFloat16> compute;
  std::span<std::int16_t> remainder;
};
/// master = master (1 - lr weight_decay) - lr scale X, with the orthogonalized X at its places in `messages`.
void apply_matrices(const MuonStep& step, std::span<const MatrixRange> ranges, const at::Tensor& messages,
                    const MuonMasters& masters, const Team& team = {});

}  // namespace trireme::optim

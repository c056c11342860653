// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <vector>

#include "trireme/kernels/attention_library.hpp"

namespace trireme::kernels::cuda {
namespace {

using Results = std::vector<at::Tensor>;

/// Operands of a forward and a backward, laid out as nn/ has them: q, k and v side by side.
struct Trial {
  AttentionShape shape;
  at::Tensor qkv, d_out;

  explicit Trial(const AttentionShape& s) : shape(s) {
    const auto bf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
    qkv = at::randn({s.batch * s.seq_len, (s.heads + 2 * s.kv_heads) * s.head_dim}, bf16);
    d_out = at::randn({s.batch * s.seq_len, s.heads * s.head_dim}, bf16);
  }

  /// Output, log-sum-exp and the gradient by qkv.
  [[nodiscard]] Results run(AttentionLibrary library) const {
    const std::int64_t q_end = shape.heads * shape.head_dim, k_end = q_end + shape.kv_heads * shape.head_dim;
    const at::Tensor out = at::empty(d_out.sizes(), d_out.options()), d_qkv = at::empty(qkv.sizes(), qkv.options()),
                     lse = at::empty({shape.batch, shape.heads, shape.seq_len}, qkv.options().dtype(at::kFloat));
    const at::Tensor q = qkv.slice(1, 0, q_end), k = qkv.slice(1, q_end, k_end), v = qkv.slice(1, k_end);
    causal_attention(library, q, k, v, shape, out, lse);
    causal_attention_backward(library, d_out, q, k, v, out, lse, shape, d_qkv.slice(1, 0, q_end),
                              d_qkv.slice(1, q_end, k_end), d_qkv.slice(1, k_end));
    return {out, lse, d_qkv};
  }
};

bool close(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor reference = b.to(at::kDouble);
  const double difference = at::linalg_vector_norm(a.to(at::kDouble) - reference).item<double>();
  return difference < 2e-2 * at::linalg_vector_norm(reference).item<double>();  // false for NaN
}

bool agree(const Results& got, const Results& expected) {
  return std::equal(got.begin(), got.end(), expected.begin(), close);
}

/// Whether it agrees with dense on a short sequence.
bool right(AttentionLibrary library, AttentionShape shape) {
  shape.batch = std::min<std::int64_t>(shape.batch, 2);
  shape.seq_len = std::min<std::int64_t>(shape.seq_len, 384);
  const Trial trial(shape);
  return agree(trial.run(library), trial.run(AttentionLibrary::dense));
}

void wait_for_gpu() {
  const c10::impl::VirtualGuardImpl gpu(at::kCUDA);
  gpu.synchronizeDevice(gpu.getDevice().index());
}

/// The best of some forwards and backwards, in seconds.
double seconds(AttentionLibrary library, const Trial& trial) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 6; ++i) {  // the first one builds the kernels' plans
    wait_for_gpu();
    const auto start = Clock::now();
    (void)trial.run(library);
    wait_for_gpu();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace

AttentionLibrary measure_attention(const AttentionShape& shape) {
  AttentionLibrary best = AttentionLibrary::dense;
  double least = std::numeric_limits<double>::infinity();
  // Dense scores of a long sequence would not fit: there the libraries are compared with each other.
  const Trial trial(shape);
  Results flash;
  for (const auto library : {AttentionLibrary::flash, AttentionLibrary::cudnn}) {
    try {
      if (library == AttentionLibrary::cudnn && at::globalContext().deterministicAlgorithms()) continue;
      if (!right(library, shape)) continue;
      const Results here = trial.run(library);
      if (!flash.empty() && !agree(here, flash)) continue;
      if (library == AttentionLibrary::flash) flash = here;
      const double time = seconds(library, trial);
      if (time < 0.97 * least) {  // prefers flash in a tie
        least = time;
        best = library;
      }
    } catch (const std::exception&) {  // this library cannot run here
    }
  }
  return best;
}

}  // namespace trireme::kernels::cuda

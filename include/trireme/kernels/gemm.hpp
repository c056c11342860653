// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/fp8.hpp"
#include "trireme/kernels/grad.hpp"

/// Matrix products. All tensors fp32 or all bf16 unless stated otherwise; sums in fp32.
namespace trireme::kernels {

/// x w^T: [N, M]. x: [N, K]; w: [M, K] contiguous. Rows of x may be apart. fp8: of both operands (see fp8.hpp).
[[nodiscard]] at::Tensor linear(const at::Tensor& x, const at::Tensor& w, Fp8 fp8 = Fp8::none);

/// The same in fp32 where the library in use computes that anyway, in the type of x and w elsewhere.
[[nodiscard]] at::Tensor linear_wide(const at::Tensor& x, const at::Tensor& w);

/// residual + x w^T. residual: [N, M]. In fp8 the product is rounded to x's type before.
[[nodiscard]] at::Tensor linear_add(const at::Tensor& x, const at::Tensor& w, const at::Tensor& residual,
                                    Fp8 fp8 = Fp8::none);

/// d_y w: the gradient of `linear` by x, [N, K], in the type of w. d_y: [N, M], of that type or fp32.
[[nodiscard]] at::Tensor linear_backward_input(const at::Tensor& d_y, const at::Tensor& w, Fp8 fp8 = Fp8::none);

/// Writes or adds d_y^T x, the gradient of `linear` by w, into fp32. d_y: [N, M], of x's type or fp32; x: [N, K];
/// grad: [M, K].
void linear_backward_weight(const at::Tensor& d_y, const at::Tensor& x, const Grad& grad);

/// Libraries of matrix products. at: at::mm (MKL in fp32, oneDNN in bf16). onednn: libtorch's
/// mkldnn::_linear_pointwise. blocked: our own kernels, in fp32 arithmetic also for bf16 data (the fastest for bf16 on
/// a CPU whose bf16 instructions are slow or missing); the same bits for any number of threads.
enum class GemmLibrary : std::uint8_t { at, onednn, blocked };

/// The library for each shape class: the data type, whether a linear layer has fewer outputs than inputs, and which of
/// its three products.
struct GemmChoice {
  struct Products {
    GemmLibrary forward = GemmLibrary::at, backward_input = GemmLibrary::at, backward_weight = GemmLibrary::at;
    friend bool operator==(const Products&, const Products&) = default;
  };
  struct Layers {
    Products wide;    ///< as many outputs as inputs, or more
    Products narrow;  ///< fewer, as an MLP's down projection has
    friend bool operator==(const Layers&, const Layers&) = default;
  };
  Layers fp32, bf16;
  /// Whether our products of bf16, for weight gradients and attention, multiply pairs with fp32 sums if the CPU can
  /// (VDPBF16PS: twice the rate of fp32 on Zen, half of it on Xeons, whose fast path is AMX), or widen to fp32.
  bool pairs = true;
  friend bool operator==(const GemmChoice&, const GemmChoice&) = default;

  /// For products of `type` of a layer with weights of [outputs, inputs].
  [[nodiscard]] const Products& of(at::ScalarType type, std::int64_t outputs, std::int64_t inputs) const {
    const Layers& layers = type == at::kBFloat16 ? bf16 : fp32;
    return outputs < inputs ? layers.narrow : layers.wide;
  }
};

/// "fp32=at,at,at/at,blocked,at bf16=at,onednn,at pairs=on": forward, backward_input, backward_weight; after "/" those
/// of narrow layers, where they differ. parse_gemm_choice(to_text(c)) == c.
[[nodiscard]] std::string to_text(const GemmChoice& choice);
/// Without "pairs", as in older checkpoints, they are on if this CPU supports them. Throws ConfigError with the allowed
/// values.
[[nodiscard]] GemmChoice parse_gemm_choice(std::string_view text);

/// Measures the fastest library for each shape class on this CPU, on the calling thread's team: takes about a second.
/// The result depends on timing, so ranks may differ: measure on rank 0 and broadcast `to_text` of it. Never selects a
/// library that cannot run here.
[[nodiscard]] GemmChoice measure_gemm();

/// Selects `choice`. at::mm everywhere until it is called. Not while another thread multiplies.
void set_gemm_choice(const GemmChoice& choice);
[[nodiscard]] const GemmChoice& gemm_choice();

/// Whether this CPU multiplies pairs of bf16 (AVX512-BF16).
[[nodiscard]] bool can_multiply_pairs();

}  // namespace trireme::kernels

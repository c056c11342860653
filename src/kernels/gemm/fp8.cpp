// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/fp8.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/cuda.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"
#include "trireme/kernels/gemm_library.hpp"

namespace trireme::kernels {
namespace {

constexpr std::int64_t stripe = 256;  ///< columns that one thread processes at a time

/// |v| to the nearest value of the type, ties to even; v: not beyond the largest one. Between two powers of two the
/// distance of values is the last bit of the mantissa; below the least normal one it is the same as there. Adding and
/// subtracting a number whose last bit is that distance rounds to it.
template <Fp8Type type>
float rounded(float v) {
  constexpr Fp8Format format = fp8_format(type);
  constexpr int dropped = 23 - format.mantissa_bits;
  constexpr float least_normal = power_of_two(format.least_exponent);
  constexpr float shifter = power_of_two(format.least_exponent + dropped);
  const std::uint32_t bits = magnitude_bits(v), sign = std::bit_cast<std::uint32_t>(v) & 0x80000000U;
  const std::uint32_t even = bits + ((1U << (dropped - 1)) - 1) + ((bits >> dropped) & 1U);
  const float normal = std::bit_cast<float>(even & ~((1U << dropped) - 1));
  const float small = (std::bit_cast<float>(bits) + shifter) - shifter;
  const float result = std::bit_cast<float>(bits) < least_normal ? small : normal;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(result) | sign);
}

template <Fp8Type type, class T>
void round_run(const T* from, float* to, std::int64_t count, float scale) {
  const float inverse = 1 / scale;
  for (std::int64_t c = 0; c < count; ++c) to[c] = rounded<type>(get(from[c]) * inverse) * scale;
}

template <class T>
std::uint32_t largest(const T* from, std::int64_t count) {
  std::uint32_t most = 0;
  for (std::int64_t c = 0; c < count; ++c) most = std::max(most, magnitude_bits(get(from[c])));
  return most;
}

/// Runs of `length` elements of a row share a scale.
template <Fp8Type type, class T>
void round_rows(Rows<const T> x, std::int64_t length, Rows<float> out) {
  parallel(x.count, [=](std::int64_t r) {
    for (std::int64_t c = 0; c < x.width; c += length) {
      const std::int64_t count = std::min(length, x.width - c);
      round_run<type>(x[r] + c, out[r] + c, count, fp8_scale(fp8_scale_byte(largest(x[r] + c, count), type)));
    }
  });
}

/// `length` elements of a column share a scale.
template <Fp8Type type, class T>
void round_columns(Rows<const T> x, std::int64_t length, Rows<float> out) {
  parallel_chunks(x.width, stripe, [=](std::int64_t begin, std::int64_t end) {
    std::uint32_t most[stripe];
    float scale[stripe];
    const std::int64_t width = end - begin;
    for (std::int64_t first = 0; first < x.count; first += length) {
      const std::int64_t last = std::min(x.count, first + length);
      std::fill_n(most, width, 0U);
      for (std::int64_t r = first; r < last; ++r)
        for (std::int64_t c = 0; c < width; ++c) most[c] = std::max(most[c], magnitude_bits(get(x[r][begin + c])));
      for (std::int64_t c = 0; c < width; ++c) scale[c] = fp8_scale(fp8_scale_byte(most[c], type));
      for (std::int64_t r = first; r < last; ++r)
        for (std::int64_t c = 0; c < width; ++c)
          out[r][begin + c] = rounded<type>(get(x[r][begin + c]) * (1 / scale[c])) * scale[c];
    }
  });
}

template <Fp8Type type, class T>
void round_all(Rows<const T> x, Rows<float> out) {
  std::vector<std::uint32_t> most(static_cast<std::size_t>(x.count));
  parallel(x.count, [&](std::int64_t r) { most[static_cast<std::size_t>(r)] = largest(x[r], x.width); });
  const float scale = fp8_scale(fp8_scale_byte(most.empty() ? 0 : *std::ranges::max_element(most), type));
  parallel(x.count, [=](std::int64_t r) { round_run<type>(x[r], out[r], x.width, scale); });
}

template <Fp8Type type, class T>
void round_matrix(Rows<const T> x, const Fp8Rounding& rounding, Rows<float> out) {
  if (rounding.recipe == Fp8::tensorwise) return round_all<type>(x, out);
  const bool rows = rounding.sum == Fp8Sum::along_rows, blocks = rounding.recipe == Fp8::mx;
  const std::int64_t whole = std::max<std::int64_t>(1, rows ? x.width : x.count);
  rows ? round_rows<type>(x, blocks ? mx_block : whole, out) : round_columns<type>(x, blocks ? mx_block : whole, out);
}

}  // namespace

at::Tensor fp8_values(const at::Tensor& x, const Fp8Rounding& rounding) {
  at::Tensor out = at::empty(x.sizes(), at::kFloat);
  with_type(x, [&]<class T>(T) {
    const auto from = rows<const T>(x);
    const auto to = rows<float>(out);
    rounding.type == Fp8Type::e4m3 ? round_matrix<Fp8Type::e4m3>(from, rounding, to)
                                   : round_matrix<Fp8Type::e5m2>(from, rounding, to);
  });
  return out;
}

at::Tensor fp8_linear(Fp8 recipe, const at::Tensor& x, const at::Tensor& w) {
  if (x.is_cuda()) return cuda::fp8_linear(recipe, x, w);
  const Fp8Rounding rounding{.recipe = recipe};
  const GemmLibrary library = gemm_choice().of(at::kFloat, w.size(0), w.size(1)).forward;
  return linear(library, fp8_values(x, rounding), fp8_values(w, rounding)).to(x.scalar_type());
}

at::Tensor fp8_backward_input(Fp8 recipe, const at::Tensor& d_y, const at::Tensor& w) {
  if (w.is_cuda()) return cuda::fp8_backward_input(recipe, d_y, w);
  const at::Tensor values = fp8_values(d_y, {.recipe = recipe, .type = fp8_gradient_type(recipe)});
  const GemmLibrary library = gemm_choice().of(at::kFloat, w.size(0), w.size(1)).backward_input;
  return linear_backward_input(library, values, fp8_values(w, {.recipe = recipe, .sum = Fp8Sum::down_columns}))
      .to(w.scalar_type());
}

}  // namespace trireme::kernels

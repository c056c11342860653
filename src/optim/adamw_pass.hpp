// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "optim/adamw_scalars.hpp"
#include "optim/rounding.hpp"
#include "trireme/base/split_fp32.hpp"
#include "trireme/base/streaming.hpp"

namespace trireme::optim {

/// The moments of one update, at its first element: fp32, or bf16 with a random word for each element.
template <class Moment>
struct MomentStreams {
  Moment *m, *v;
  const std::uint32_t* random = nullptr;
};

/// The streams of one update, each at its first element. compute may be null.
template <class Gradient, class Moment>
struct AdamWStreams {
  const Gradient* gradient;
  float* master;
  MomentStreams<Moment> moments;
  c10::BFloat16* compute;
};

[[gnu::always_inline]] inline float widen(float x) { return x; }
[[gnu::always_inline]] inline float widen(c10::BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.x} << 16); }

/// To nearest, ties to even; NaN stays NaN.
[[gnu::always_inline]] inline std::uint16_t to_bf16_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(x == x ? rounded : 0x7fc0U);
}

/// The master after an update of element i; the moments are updated in place. Every fused multiply-add is written out,
/// so that vector bodies, their tails and any vector length round alike.
template <class Gradient, class Moment>
[[gnu::always_inline]] inline float updated(const AdamWScalars& c, Gradient gradient,
                                            const MomentStreams<Moment>& moments, std::int64_t i, float master) {
  const float g = widen(gradient) * c.gradient_factor, before = widen(moments.m[i]);
  const float m = std::fma(c.one_minus_beta1, g - before, before);
  const float v = std::fma(c.one_minus_beta2, g * g, c.beta2 * widen(moments.v[i]));
  const float decayed = std::fma(-c.decay, master, master);
  if constexpr (std::is_same_v<Moment, float>) {
    moments.m[i] = m;
    moments.v[i] = v;
  } else {
    moments.m[i].x = stochastic_bits(m, moments.random[i] & 0xffffU);
    moments.v[i].x = stochastic_bits(v, moments.random[i] >> 16);
  }
  return std::fma(-c.step_size, m / std::fma(std::sqrt(v), c.second_correction, c.eps), decayed);
}

/// Updates elements [begin, end). `compute` is element `begin` of the copy.
template <bool with_compute, class Gradient, class Moment>
[[gnu::always_inline]] inline void update(const AdamWScalars& c, const AdamWStreams<Gradient, Moment>& s,
                                          std::int64_t begin, std::int64_t end, std::uint16_t* compute) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    const float master = updated(c, s.gradient[i], s.moments, i, s.master[i]);
    s.master[i] = master;
    if constexpr (with_compute) compute[i - begin] = to_bf16_bits(master);
  }
}

/// The same for masters split into a bf16 copy and a remainder.
template <class Moment>
struct SplitStreams {
  const float* gradient;
  MomentStreams<Moment> moments;
  std::uint16_t* compute;
  std::int16_t* remainder;
};
template <class Moment>
void adamw_pass(const AdamWScalars& scalars, const SplitStreams<Moment>& streams, std::int64_t elements) {
  const AdamWScalars c = scalars;
  const SplitStreams<Moment> s = streams;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < elements; ++i) {
    const float master = updated(c, s.gradient[i], s.moments, i, split::joined(s.compute[i], s.remainder[i]));
    s.compute[i] = split::gathered_bits(master);
    s.remainder[i] = split::remainder_bits(master);
  }
}

/// Updates `elements` elements in one pass. The copy's whole lines are written by non-temporal stores.
template <bool with_compute, class Gradient, class Moment>
void adamw_pass(const AdamWScalars& scalars, const AdamWStreams<Gradient, Moment>& streams, std::int64_t elements) {
  constexpr std::int64_t group = cache_line / sizeof(std::uint16_t);
  const AdamWScalars c = scalars;
  const AdamWStreams<Gradient, Moment> s = streams;
  std::uint16_t* const copy = with_compute ? &s.compute->x : nullptr;
  std::int64_t i = 0;
  if constexpr (with_compute) {
    i = std::min<std::int64_t>(elements, to_next_line(copy) / sizeof(std::uint16_t));
    update<with_compute>(c, s, 0, i, copy);
  }
  for (; i + group <= elements; i += group) {
    prefetch<group, false>(s.gradient + i);
    prefetch<group, true>(s.master + i);
    prefetch<group, true>(s.moments.m + i);
    prefetch<group, true>(s.moments.v + i);
    alignas(cache_line) std::array<std::uint16_t, group> line;
    update<with_compute>(c, s, i, i + group, line.data());
    if constexpr (with_compute) stream_line(line.data(), copy + i);
  }
  update<with_compute>(c, s, i, elements, copy + i);
  if constexpr (with_compute) end_of_stream();
}

}  // namespace trireme::optim

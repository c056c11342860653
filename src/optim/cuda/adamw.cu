// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "kernels/cuda/block.cuh"
#include "optim/cuda/passes.hpp"
#include "optim/rounding.hpp"
#include "trireme/base/split_fp32.hpp"

namespace trireme::optim::cuda {
namespace {

using namespace kernels::cuda;

constexpr int n = 4;  // 16 bytes of fp32, and the elements of a random function's value

/// Every fused multiply-add is written out and no other is made: the bits of the host's update.
__device__ inline void update(const AdamWScalars& c, float step_size, float decay, float gradient, float& m, float& v,
                              float& master) {
  const float g = __fmul_rn(gradient, c.gradient_factor);
  m = fmaf(c.one_minus_beta1, g - m, m);
  v = fmaf(c.one_minus_beta2, __fmul_rn(g, g), __fmul_rn(c.beta2, v));
  const float decayed = fmaf(-decay, master, master);
  master = fmaf(-step_size, m / fmaf(sqrtf(v), c.second_correction, c.eps), decayed);
}

/// split: masters are a bf16 copy and a remainder.
template <bool split, class Moment>
struct Update {
  AdamWScalars scalars;
  Ranges ranges;
  Streams streams;
  std::int64_t first;  ///< element that i counts from

  /// The range that contains element i, or else the next one.
  [[nodiscard]] __device__ int range_of(std::int64_t i) const {
    int r = 0;
    while (r < ranges.count && ranges.end[static_cast<std::size_t>(r)] <= i) ++r;
    return r;
  }

  template <int k>
  __device__ void run(std::int64_t offset) const {
    const std::int64_t i = first + offset;
    const auto r = static_cast<std::size_t>(range_of(i));
    if (r == static_cast<std::size_t>(ranges.count)) return;
    if (i >= ranges.begin[r] && i + k <= ranges.end[r]) return update_pack<k>(i, r);
    if constexpr (k > 1) {
      for (int j = 0; j < k; ++j) run<1>(offset + j);
    }
  }

  /// The element of the whole parameter that element i of the shard is.
  [[nodiscard]] __device__ std::int64_t whole(std::int64_t i, std::size_t r) const {
    const std::int64_t at = i - ranges.begin[r];
    if (ranges.stride[r] == 0) return ranges.first[r] + at;
    return ranges.first[r] + at / ranges.length[r] * (ranges.stride[r] - ranges.length[r]) + at;
  }
  [[nodiscard]] __device__ std::uint32_t word_of(std::int64_t element, std::size_t r) const {
    const auto words = rounding_words(ranges.key[r], element / n, scalars.count);
    return element % n == 0 ? words[0] : element % n == 1 ? words[1] : element % n == 2 ? words[2] : words[3];
  }
  /// Random words of elements i to i + k - 1.
  template <int k>
  __device__ Pack<std::uint32_t, k> random(std::int64_t i, std::size_t r) const {
    Pack<std::uint32_t, k> words;
    const std::int64_t element = whole(i, r);
    if constexpr (k == n) {
      if (element % n == 0 && whole(i + n - 1, r) == element + n - 1) {
        const auto four = rounding_words(ranges.key[r], element / n, scalars.count);
        for (int j = 0; j < k; ++j) words.at[j] = four[static_cast<std::size_t>(j)];
        return words;
      }
    }
    for (int j = 0; j < k; ++j) words.at[j] = word_of(whole(i + j, r), r);
    return words;
  }

  template <int k>
  __device__ void update_pack(std::int64_t i, std::size_t r) const {
    auto* const all_m = static_cast<Moment*>(streams.m);
    auto* const all_v = static_cast<Moment*>(streams.v);
    const auto g = load<k>(streams.gradient + i);
    Pack<Moment, k> stored_m = load<k>(all_m + i), stored_v = load<k>(all_v + i);
    Pack<float, k> master;
    Pack<c10::BFloat16, k> rounded;
    Pack<std::int16_t, k> rest;
    Pack<std::uint32_t, k> words;
    if constexpr (!std::is_same_v<Moment, float>) words = random<k>(i, r);
    if constexpr (split) {
      rounded = load<k>(streams.compute + i);
      rest = load<k>(streams.remainder + i);
      for (int j = 0; j < k; ++j) master.at[j] = split::joined(rounded.at[j].x, rest.at[j]);
    } else {
      master = load<k>(streams.master + i);
    }
    for (int j = 0; j < k; ++j) {
      auto m = static_cast<float>(stored_m.at[j]), v = static_cast<float>(stored_v.at[j]);
      update(scalars, ranges.step_size[r], ranges.decay[r], g.at[j], m, v, master.at[j]);
      if constexpr (std::is_same_v<Moment, float>) {
        stored_m.at[j] = m;
        stored_v.at[j] = v;
      } else {
        stored_m.at[j].x = stochastic_bits(m, words.at[j] & 0xffffU);
        stored_v.at[j].x = stochastic_bits(v, words.at[j] >> 16);
      }
      if constexpr (split) {
        rounded.at[j].x = split::gathered_bits(master.at[j]);
        rest.at[j] = split::remainder_bits(master.at[j]);
      } else {
        rounded.at[j] = static_cast<c10::BFloat16>(master.at[j]);
      }
    }
    if constexpr (split)
      store<k>(streams.remainder + i, rest);
    else
      store<k>(streams.master + i, master);
    store<k>(all_m + i, stored_m);
    store<k>(all_v + i, stored_v);
    if (streams.compute != nullptr) store<k>(streams.compute + i, rounded);
  }
};

template <bool split, class Moment>
void launch(const AdamWScalars& scalars, const Ranges& ranges, const Streams& s) {
  // Packs are counted from a multiple of their size, so that they are aligned where the shard is.
  const std::int64_t first = ranges.begin[0] / n * n;
  const std::int64_t elements = ranges.end[static_cast<std::size_t>(ranges.count - 1)] - first;
  const Update<split, Moment> body{scalars, ranges, s, first};
  const bool whole = fits<n>(s.gradient) && fits<n>(s.master) && fits<n>(static_cast<const Moment*>(s.m)) &&
                     fits<n>(static_cast<const Moment*>(s.v)) && fits<n>(s.compute) && fits<n>(s.remainder);
  whole ? for_range<n>("adamw", elements, body) : for_range<1>("adamw", elements, body);
}

template <class Moment>
void launch(const AdamWScalars& scalars, const Ranges& ranges, const Streams& s) {
  s.remainder != nullptr ? launch<true, Moment>(scalars, ranges, s) : launch<false, Moment>(scalars, ranges, s);
}

}  // namespace

void adamw(const AdamWScalars& scalars, const Ranges& ranges, const Streams& s) {
  if (ranges.count == 0) return;
  s.rounded_moments ? launch<c10::BFloat16>(scalars, ranges, s) : launch<float>(scalars, ranges, s);
}

}  // namespace trireme::optim::cuda

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/block.cuh"
#include "optim/cuda/passes.hpp"
#include "trireme/base/split_fp32.hpp"

namespace trireme::optim::cuda {
namespace {

using namespace kernels::cuda;

constexpr int n = 4;  // 16 bytes of fp32

/// Every fused multiply-add is written out and no other is made: the bits of the host's update.
__device__ inline void update(const AdamWScalars& c, float decay, float gradient, float& m, float& v, float& master) {
  const float g = __fmul_rn(gradient, c.gradient_factor);
  m = fmaf(c.one_minus_beta1, g - m, m);
  v = fmaf(c.one_minus_beta2, __fmul_rn(g, g), __fmul_rn(c.beta2, v));
  const float decayed = fmaf(-decay, master, master);
  master = fmaf(-c.step_size, m / fmaf(sqrtf(v), c.second_correction, c.eps), decayed);
}

/// split: masters are the copy and what it left of them.
template <bool split>
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
    if (i >= ranges.begin[r] && i + k <= ranges.end[r]) return update_pack<k>(i, ranges.decay[r]);
    if constexpr (k > 1) {
      for (int j = 0; j < k; ++j) run<1>(offset + j);
    }
  }

  template <int k>
  __device__ void update_pack(std::int64_t i, float decay) const {
    const auto g = load<k>(streams.gradient + i);
    auto m = load<k>(streams.m + i), v = load<k>(streams.v + i);
    Pack<float, k> master;
    Pack<c10::BFloat16, k> rounded;
    Pack<std::int16_t, k> rest;
    if constexpr (split) {
      rounded = load<k>(streams.compute + i);
      rest = load<k>(streams.remainder + i);
      for (int j = 0; j < k; ++j) master.at[j] = split::joined(rounded.at[j].x, rest.at[j]);
    } else {
      master = load<k>(streams.master + i);
    }
    for (int j = 0; j < k; ++j) {
      update(scalars, decay, g.at[j], m.at[j], v.at[j], master.at[j]);
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
    store<k>(streams.m + i, m);
    store<k>(streams.v + i, v);
    if (streams.compute != nullptr) store<k>(streams.compute + i, rounded);
  }
};

template <bool split>
void launch(const AdamWScalars& scalars, const Ranges& ranges, const Streams& s) {
  // Packs are counted from a multiple of their size, so that they are aligned where the shard is.
  const std::int64_t first = ranges.begin[0] / n * n;
  const std::int64_t elements = ranges.end[static_cast<std::size_t>(ranges.count - 1)] - first;
  const Update<split> body{scalars, ranges, s, first};
  const bool whole = fits<n>(s.gradient) && fits<n>(s.master) && fits<n>(s.m) && fits<n>(s.v) && fits<n>(s.compute) &&
                     fits<n>(s.remainder);
  whole ? for_range<n>("adamw", elements, body) : for_range<1>("adamw", elements, body);
}

}  // namespace

void adamw(const AdamWScalars& scalars, const Ranges& ranges, const Streams& s) {
  if (ranges.count == 0) return;
  s.remainder != nullptr ? launch<true>(scalars, ranges, s) : launch<false>(scalars, ranges, s);
}

}  // namespace trireme::optim::cuda

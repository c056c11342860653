// SPDX-License-Identifier: Apache-2.0
// Masters in two halves are the masters, to the bit, and are updated as they are.
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/tensors.hpp"
#include "trireme/base/split_fp32.hpp"
#include "trireme/optim/adamw.hpp"
#include "trireme/store/masters.hpp"

namespace trireme::optim::split_masters_test {
namespace {

float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
float gathered(float master) { return of_bits(std::uint32_t{split::gathered_bits(master)} << 16); }

TEST(SplitMasters, AreTheMastersWhateverTheyAre) {
  for (std::uint32_t high = 0; high <= 0xffffU; ++high)
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x1234U, 0x7fffU, 0x8000U, 0x8001U, 0xabcdU, 0xffffU}) {
      const float master = of_bits(high << 16 | low);
      const float back = split::joined(split::gathered_bits(master), split::remainder_bits(master));
      if (std::isnan(master))
        ASSERT_TRUE(std::isnan(back) && std::isnan(gathered(master))) << std::hex << (high << 16 | low);
      else
        ASSERT_EQ(std::bit_cast<std::uint32_t>(back), high << 16 | low);
    }
}

TEST(SplitMasters, AreGatheredAsTheNearestNumberAndTiesAwayFromZero) {
  for (const float sign : {1.0F, -1.0F}) {
    EXPECT_EQ(gathered(sign * of_bits(0x3f807fffU)), sign * of_bits(0x3f800000U));
    EXPECT_EQ(gathered(sign * of_bits(0x3f808000U)), sign * of_bits(0x3f810000U)) << "a tie, of even and odd";
    EXPECT_EQ(gathered(sign * of_bits(0x3f818000U)), sign * of_bits(0x3f820000U));
    EXPECT_EQ(gathered(sign * of_bits(0x3f808001U)), sign * of_bits(0x3f810000U));
    EXPECT_EQ(gathered(sign * 0.0F), 0.0F);
    EXPECT_EQ(gathered(sign * std::numeric_limits<float>::max()), sign * std::numeric_limits<float>::infinity());
  }
}

template <class T>
std::span<T> span_of(const at::Tensor& t) {
  return {t.mutable_data_ptr<T>(), static_cast<std::size_t>(t.numel())};
}

/// The nearest bf16 number, of two that are as near the one further from zero: by distances, not by bits.
c10::BFloat16 rounded_away(float master) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(master) & 0xffff0000U;
  const double below = std::fabs(double{master} - of_bits(bits)),
               above = std::fabs(double{of_bits(bits + 0x10000U)} - master);
  return c10::BFloat16(below < above ? of_bits(bits) : of_bits(bits + 0x10000U));
}
bool is_tie(float master) { return (std::bit_cast<std::uint32_t>(master) & 0xffffU) == 0x8000U; }

TEST(SplitMasters, FollowFp32MastersWhoseCopyAPlainLoopRoundsAway) {
  constexpr std::int64_t elements = 70'001;  // more than one tile
  const std::vector<UpdateRange> ranges{{{0, 9}, 0}, {{9, 40'000}, 1}, {{40'003, elements}, 0}};
  const at::Tensor master = at::randn({elements}), m = at::zeros({elements}), v = at::zeros({elements});
  const at::Tensor split_m = m.clone(), split_v = v.clone();
  const at::Tensor half = at::zeros({elements}, at::kBFloat16);
  std::vector<std::int16_t> remainder(static_cast<std::size_t>(elements));
  const std::span<float> masters = span_of<float>(master);
  const std::span<c10::BFloat16> gathered = span_of<c10::BFloat16>(half);
  std::int64_t ties = 0, of_updates = 0;
  for (std::int64_t count = 1; count <= 60; ++count) {
    // Every 16th is made a tie, another one each step; of those some are not moved, because nothing moves them.
    for (auto i = static_cast<std::size_t>(count % 16); i < masters.size(); i += 16)
      masters[i] = of_bits((std::bit_cast<std::uint32_t>(masters[i]) & 0xffff0000U) | 0x8000U);
    if (count % 10 == 1) store::split_masters(masters, gathered, remainder);
    for (auto i = static_cast<std::size_t>(count % 16); i < masters.size(); i += 16) {
      gathered[i].x = split::gathered_bits(masters[i]);
      remainder[i] = split::remainder_bits(masters[i]);
    }
    at::Tensor gradient = 3 * at::randn({elements});
    gradient.narrow(0, 9, 20'000).zero_();
    const AdamWStep step{
        .lr = 1e-2, .weight_decay = {0.1, 0}, .lr_factor = {1, 0.3}, .count = count, .gradient_factor = 0.37};
    const std::span<const float> gradients = span_of<float>(gradient);
    adamw(step, ranges, gradients, AdamWState{masters, span_of<float>(m), span_of<float>(v)});
    adamw(step, ranges, gradients,
          SplitAdamWState{gathered, remainder, span_of<float>(split_m), span_of<float>(split_v)});
    const at::Tensor joined = at::zeros({elements}), expected = at::zeros({elements}, at::kBFloat16);
    store::join_masters(gathered, remainder, span_of<float>(joined));
    for (std::size_t i = 0; i < masters.size(); ++i) {
      span_of<c10::BFloat16>(expected)[i] = rounded_away(masters[i]);
      const bool even = gathered[i].x != c10::BFloat16(masters[i]).x;
      ties += is_tie(masters[i]) && even ? 1 : 0;
      of_updates += is_tie(masters[i]) && i >= 20'009 ? 1 : 0;
      ASSERT_TRUE(is_tie(masters[i]) || !even) << "only ties are rounded otherwise than fp32 masters";
    }
    ASSERT_TRUE(test::same_bits(joined, master)) << count;
    ASSERT_TRUE(test::same_bits(half, expected)) << count;
    ASSERT_TRUE(test::same_bits(split_m, m)) << count;
    ASSERT_TRUE(test::same_bits(split_v, v)) << count;
  }
  EXPECT_GT(ties, 10'000) << "and the copy of fp32 masters would be another";
  EXPECT_GT(of_updates, 10) << "which updates made";
}

}  // namespace
}  // namespace trireme::optim::split_masters_test

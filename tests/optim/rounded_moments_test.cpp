// SPDX-License-Identifier: Apache-2.0
// Moments in bf16: rounded so that their mean is right, by random words that are the same on every mesh.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "optim/adamw_pass.hpp"
#include "optim/rounding.hpp"
#include "shard/small_model.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/model/tensor_plan.hpp"
#include "trireme/optim/adamw.hpp"
#include "trireme/shard/copies.hpp"
#include "trireme/store/masters.hpp"

namespace trireme::optim::rounded_moments_test {
namespace {

using Floats = std::vector<float>;
using Bf16s = std::vector<c10::BFloat16>;

constexpr std::uint64_t seed = 77;

float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
float of_bf16(std::uint16_t bits) { return of_bits(std::uint32_t{bits} << 16); }

optimizer::OptimizerPlan plan() {
  config::RunConfig config;
  config.run.seed = seed;
  config.precision.moments = DType::bf16;
  return optimizer::OptimizerPlan(config);
}

TEST(StochasticRounding, HasTheMeanOfTheValue) {
  for (const float value : {1.0F, 1.00001F, -0.3F, 2.5e-9F, -7e-20F, 3e-38F, 1e-40F, 65537.0F}) {
    double sum = 0;
    for (std::uint32_t random = 0; random <= 0xffffU; ++random) {
      const float rounded = of_bf16(stochastic_bits(value, random));
      ASSERT_LT(std::fabs(double{rounded} - value), std::fabs(double{value}) / 128 + 1e-40) << "a neighbour";
      sum += rounded;
    }
    EXPECT_EQ(sum / 0x1p16, double{value}) << "exactly: of 2^16 words as many round up as bits are cut off";
  }
}

TEST(StochasticRounding, LeavesWhatBf16Holds) {
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits)
    for (const std::uint32_t random : {0U, 0x8000U, 0xffffU}) {
      const float value = of_bf16(static_cast<std::uint16_t>(bits));
      const float rounded = of_bf16(stochastic_bits(value, random));
      if (std::isnan(value))
        ASSERT_TRUE(std::isnan(rounded)) << std::hex << bits;
      else
        ASSERT_EQ(std::bit_cast<std::uint32_t>(rounded), bits << 16);
    }
}

/// A shard with gradients, and its state.
struct Shard {
  explicit Shard(std::int64_t elements)
      : master(static_cast<std::size_t>(elements)),
        gradient(master.size()),
        m(master.size()),
        v(master.size()),
        words(master.size()) {}
  [[nodiscard]] RoundedAdamWState state() { return {master, m, v}; }

  Floats master, gradient;
  Bf16s m, v;
  std::vector<std::uint32_t> words;  ///< of the oracle
};

/// Number `stream` of an element of a whole parameter.
float value_at(const std::string& name, std::int64_t element, std::uint64_t stream) {
  return static_cast<float>(normal_at(stream_key(stream, name), static_cast<std::uint64_t>(element)));
}

/// Calls each(parameter, element of the shard, element of the whole parameter).
template <class Each>
void for_elements(const model::ParameterBlock& block, const shard::BlockLayout& layout, int rank, Each each) {
  for (const shard::Slice& slice : layout.slices(rank)) {
    const model::Parameter& parameter = block.parameters[static_cast<std::size_t>(slice.parameter)];
    for (const model::Extent& run : model::extents(parameter, slice.elements.begin, slice.elements.end))
      for (std::int64_t i = 0; i < run.count; ++i)
        each(parameter, slice.offset + run.held - slice.elements.begin + i, run.whole + i);
  }
}

AdamWStep step_of(std::int64_t count) {
  return {.lr = 1e-2, .beta2 = 0.99, .weight_decay = {0.1, 0}, .count = count, .gradient_factor = 0.37};
}

/// One of the two bf16 numbers around `value`, by their distances: the upper one in magnitude for the largest random
/// numbers.
c10::BFloat16 rounded(float value, std::uint32_t random) {
  const float below = of_bits(std::bit_cast<std::uint32_t>(value) & 0xffff0000U);
  const float above = of_bits(std::bit_cast<std::uint32_t>(below) + 0x10000U);
  const double part = (double{value} - below) / (double{above} - below);
  return c10::BFloat16(random >= (1 - part) * 0x1p16 ? above : below);
}

/// The update of fp32 moments, which adamw_test compares with other programs, and its rounding, one element at a time.
void plain(const AdamWStep& step, const std::vector<UpdateRange>& ranges, Shard& s) {
  for (const UpdateRange& range : ranges)
    for (std::int64_t e = range.elements.begin; e < range.elements.end; ++e) {
      const auto i = static_cast<std::size_t>(e);
      float m = s.m[i], v = s.v[i];
      s.master[i] = updated(scalars(step, range.group), s.gradient[i], MomentStreams<float>{&m, &v}, 0, s.master[i]);
      s.m[i] = rounded(m, s.words[i] & 0xffffU);
      s.v[i] = rounded(v, s.words[i] >> 16);
    }
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Every shard of every block of a model's part on a tensor rank.
template <class Each>
void for_shards(int tensor_rank, int tensor_ranks, int shards, Each each) {
  config::Model config = shard::small_model();
  config.vocab_size = 301;  // padded on two tensor ranks
  const model::Model model = model::build(config, {.rank = tensor_rank, .ranks = tensor_ranks});
  for (int b = 0; b < model.param_blocks(); ++b) {
    const model::ParameterBlock& block = model[ParamBlock{b}];
    const shard::BlockLayout layout(block, shards);
    for (int rank = 0; rank < shards; ++rank) each(block, layout, rank);
  }
}

TEST(RoundedMoments, FollowAPlainLoopOnEveryMesh) {
  using Element = std::pair<std::string, std::int64_t>;
  std::map<Element, std::array<float, 3>> expected;  // master and moments, on one rank
  for (const auto& [tensor, shards] : {std::pair{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}, {4, 1}})
    for (int tensor_rank = 0; tensor_rank < tensor; ++tensor_rank)
      for_shards(tensor_rank, tensor, shards, [&](const auto& block, const auto& layout, int rank) {
        Shard fast(layout.shard_elements());
        for_elements(block, layout, rank, [&](const model::Parameter& parameter, std::int64_t i, std::int64_t whole) {
          fast.master[static_cast<std::size_t>(i)] = value_at(parameter.name, whole, 1);
        });
        Shard slow = fast;
        const std::vector<UpdateRange> ranges = plan().ranges(block, layout, rank);
        for (std::int64_t count = 1; count <= 3; ++count) {
          for_elements(block, layout, rank, [&](const model::Parameter& parameter, std::int64_t i, std::int64_t whole) {
            const auto at = static_cast<std::size_t>(i);
            fast.gradient[at] = slow.gradient[at] =
                value_at(parameter.name, whole, 100 + static_cast<std::uint64_t>(count));
            slow.words[at] =
                philox4x32(stream_key(seed, "moments of " + parameter.name), static_cast<std::uint64_t>(whole) / 4,
                           static_cast<std::uint64_t>(count))[static_cast<std::size_t>(whole % 4)];
          });
          adamw(step_of(count), ranges, std::span<const float>(fast.gradient), fast.state());
          plain(step_of(count), ranges, slow);
          ASSERT_TRUE(same(fast.m, slow.m) && same(fast.v, slow.v) && same(fast.master, slow.master))
              << block.name << ", tensor " << tensor << ", shards " << shards << ", update " << count;
        }
        for_elements(block, layout, rank, [&](const model::Parameter& parameter, std::int64_t i, std::int64_t whole) {
          const auto at = static_cast<std::size_t>(i);
          const std::array<float, 3> found{fast.master[at], fast.m[at], fast.v[at]};
          const auto [place, first] = expected.try_emplace({parameter.name, whole}, found);
          ASSERT_EQ(place->second, found) << parameter.name << "[" << whole << "]";
          ASSERT_TRUE(!first || tensor * shards == 1);
        });
      });
}

TEST(RoundedMoments, AreTheSameForSplitMasters) {
  for_shards(0, 2, 2, [&](const auto& block, const auto& layout, int rank) {
    Shard fp32(layout.shard_elements());
    for_elements(block, layout, rank, [&](const model::Parameter& parameter, std::int64_t i, std::int64_t whole) {
      fp32.master[static_cast<std::size_t>(i)] = value_at(parameter.name, whole, 1);
      fp32.gradient[static_cast<std::size_t>(i)] = value_at(parameter.name, whole, 2);
    });
    Bf16s gathered(fp32.master.size()), m = fp32.m, v = fp32.v;
    std::vector<std::int16_t> remainder(gathered.size());
    store::split_masters(fp32.master, gathered, remainder);
    const std::vector<UpdateRange> ranges = plan().ranges(block, layout, rank);
    for (std::int64_t count = 1; count <= 3; ++count) {
      adamw(step_of(count), ranges, std::span<const float>(fp32.gradient), fp32.state());
      adamw(step_of(count), ranges, std::span<const float>(fp32.gradient),
            RoundedSplitAdamWState{gathered, remainder, m, v});
    }
    Floats joined(gathered.size());
    store::join_masters(gathered, remainder, joined);
    EXPECT_TRUE(same(joined, fp32.master) && same(m, fp32.m) && same(v, fp32.v)) << block.name;
  });
}

std::vector<UpdateRange> one_range(std::int64_t elements) {
  return {{.elements = {0, elements}, .group = 1, .key = 5, .whole = {.length = elements}}};
}

TEST(RoundedMoments, HaveTheSameBitsHoweverARangeIsCut) {
  constexpr std::int64_t elements = 70'001;  // more than one tile
  Shard whole(elements);
  for (std::size_t i = 0; i < whole.gradient.size(); ++i)
    whole.gradient[i] = static_cast<float>(normal_at(3, static_cast<std::uint64_t>(i)));
  Shard cut = whole;
  std::vector<UpdateRange> pieces;
  for (std::int64_t begin = 0, length = 1; begin < elements; begin += length, length = length * 7 % 1009 + 1) {
    const std::int64_t end = std::min(elements, begin + length);
    pieces.push_back(
        {.elements = {begin, end}, .group = 1, .key = 5, .whole = {.first = begin, .length = end - begin}});
  }
  for (std::int64_t count = 1; count <= 2; ++count) {
    adamw(step_of(count), one_range(elements), std::span<const float>(whole.gradient), whole.state());
    adamw(step_of(count), pieces, std::span<const float>(cut.gradient), cut.state());
  }
  EXPECT_TRUE(same(whole.m, cut.m) && same(whole.v, cut.v) && same(whole.master, cut.master));
}

/// Rounded to nearest, both would stay at their first value for ever.
TEST(RoundedMoments, DecayAsInFp32WhereTheGradientIsZero) {
  constexpr std::int64_t elements = 40'000, updates = 1000;
  Shard shard(elements);
  std::fill(shard.m.begin(), shard.m.end(), c10::BFloat16(1.0F));
  std::fill(shard.v.begin(), shard.v.end(), c10::BFloat16(1.0F));
  AdamWStep step = step_of(1);
  step.beta1 = step.beta2 = 0.999;
  ASSERT_EQ(static_cast<float>(c10::BFloat16(0.999F * 1.0F)), 1.0F) << "the nearest";
  for (step.count = 1; step.count <= updates; ++step.count)
    adamw(step, one_range(elements), std::span<const float>(shard.gradient), shard.state());
  double first = 0, second = 0, square = 0;
  for (std::size_t i = 0; i < shard.m.size(); ++i) {
    first += shard.m[i];
    second += shard.v[i];
    square += static_cast<double>(shard.v[i]) * shard.v[i];
  }
  const double expected = std::pow(0.999, updates), mean = second / elements;
  const double error = std::sqrt((square / elements - mean * mean) / elements);  // of the mean
  EXPECT_LT(error, 0.002 * expected);
  EXPECT_NEAR(first / elements, expected, 5 * error);
  EXPECT_NEAR(mean, expected, 5 * error);
}

TEST(RoundedMoments, DifferBetweenMomentsElementsUpdatesAndKeys) {
  std::set<std::uint32_t> halves;
  for (const std::uint64_t key : {stream_key(seed, "moments of a"), stream_key(seed, "moments of b")})
    for (std::int64_t count = 1; count <= 4; ++count)
      for (const std::uint32_t word : rounding_words(key, 9, count)) halves.insert({word & 0xffffU, word >> 16});
  EXPECT_GT(halves.size(), 60U) << "of 64 numbers";
}

TEST(RoundedMoments, RequireThePlaceOfTheirElements) {
  Shard shard(8);
  EXPECT_THROW(
      adamw(step_of(1), std::vector<UpdateRange>{{{0, 8}, 0}}, std::span<const float>(shard.gradient), shard.state()),
      BugError);
}

}  // namespace
}  // namespace trireme::optim::rounded_moments_test

// SPDX-License-Identifier: Apache-2.0
//
// Cost of a token in computed positions: not seconds, but the reason for their number.
#include "trireme/train/engine/text_window.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme::train::text_window_test {
namespace {

/// Positions that are computed for `tokens` tokens after a prompt, and the most for one of them.
struct Cost {
  std::int64_t prompt = 0, all = 0, most = 0;
};

Cost cost_of(TextWindow window, std::int64_t prompt, std::int64_t tokens) {
  Cost cost{.prompt = window.next(prompt).count};
  for (std::int64_t i = 1; i < tokens; ++i) {
    const std::int64_t count = window.next(prompt + i).count;
    cost.all += count;
    cost.most = std::max(cost.most, count);
  }
  return cost;
}

TEST(TextWindow, ComputesOnePositionATokenBehindThePrompt) {
  const Cost cost = cost_of(TextWindow({}, 4096, true), 1000, 3000);
  EXPECT_EQ(cost.prompt, 1000);
  EXPECT_EQ(cost.most, 1);
  EXPECT_EQ(cost.all, 2999);
}

TEST(TextWindow, WithoutACacheTheCostOfATextGrowsWithItsSquare) {
  const auto all = [](std::int64_t tokens) { return cost_of(TextWindow({}, 4096, false), 1, tokens + 1).all; };
  EXPECT_EQ(all(100), 100 * 101 / 2 + 100);
  EXPECT_EQ(all(1000), 1000 * 1001 / 2 + 1000);
}

TEST(TextWindow, MovesByHalfOfWhatTheModelSees) {
  for (const std::int64_t seq_len : {1, 2, 7, 64}) {
    TextWindow cached({}, seq_len, true), slow({}, seq_len, false);
    std::int64_t computed = 0;
    for (std::int64_t length = 3; length < 1000; ++length) {
      const ForwardRange now = cached.next(length), whole = slow.next(length);
      EXPECT_EQ(now.begin, whole.begin) << "the cache changes what is seen";
      EXPECT_EQ(now.begin + now.past + now.count, length);
      EXPECT_LE(now.past + now.count, seq_len);
      EXPECT_EQ(whole.past, 0);
      computed += now.count;
    }
    EXPECT_LE(computed, 2 * 1000 + seq_len);
  }
}

TEST(TextWindow, OfALongerPromptBeginsWithItsEnd) {
  EXPECT_EQ(TextWindow({}, 8, true).next(20), (ForwardRange{.begin = 12, .past = 0, .count = 8}));
}

TEST(TextWindow, BeginsAnewWhereLongropeTurnsEveryKeyOtherwise) {
  model::Sizes sizes;
  sizes.rope_scaling = config::RopeScaling{.type = config::RopeType::longrope, .original_max_position_embeddings = 10};
  TextWindow window(sizes, 64, true);
  EXPECT_EQ(window.next(9).past, 0);
  EXPECT_EQ(window.next(10).past, 9);
  EXPECT_EQ(window.next(11), (ForwardRange{.begin = 0, .past = 0, .count = 11}));
  EXPECT_EQ(window.next(12).past, 11);
}

TEST(TextWindow, BeginsAnewAtEveryTokenWhereADynamicBaseGrows) {
  model::Sizes sizes;
  sizes.rope_scaling = config::RopeScaling{.type = config::RopeType::dynamic, .original_max_position_embeddings = 10};
  TextWindow window(sizes, 64, true);
  EXPECT_EQ(window.next(9).past, 0);
  EXPECT_EQ(window.next(10).past, 9);
  for (std::int64_t length = 11; length < 14; ++length) EXPECT_EQ(window.next(length).past, 0) << length;
}

TEST(TextWindow, RefusesATextThatGrewByMoreThanAToken) {
  TextWindow window({}, 64, true);
  (void)window.next(9);
  EXPECT_THROW((void)window.next(11), BugError);
}

}  // namespace
}  // namespace trireme::train::text_window_test

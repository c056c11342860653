// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <variant>

#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule::testing {

/// `verify` rejects `sound` with any op of `lane` left out, doubled, or moved
/// after the next forward, recompute or backward (other than of weights
/// alone), or before the preceding one. Returns the number of ops of the lane.
inline int expect_each_exchange_needed(const Schedule& sound, const model::Model& model, Lane lane) {
  const auto reads = [](const Op& op) {
    const auto* backward = std::get_if<Backward>(&op);
    return std::holds_alternative<Forward>(op) || std::holds_alternative<Recompute>(op) ||
           (backward != nullptr && backward->part != BackwardPart::weight);
  };
  int tried = 0;
  for (std::size_t i = 0; i < sound.ops.size(); ++i) {
    if (lane_of(sound.ops[i]) != lane) continue;
    ++tried;
    const std::string what = print(sound.ops[i], model);
    const auto at = static_cast<std::ptrdiff_t>(i);
    Schedule without = sound, twice = sound, late = sound, early = sound;
    without.ops.erase(without.ops.begin() + at);
    twice.ops.insert(twice.ops.begin() + at, sound.ops[i]);
    EXPECT_FALSE(verify(without, model, 1).empty()) << what << " left out";
    EXPECT_FALSE(verify(twice, model, 1).empty()) << what << " twice";
    const auto from = late.ops.begin() + at;
    std::rotate(from, from + 1, std::find_if(from, late.ops.end(), reads) + 1);
    EXPECT_FALSE(verify(late, model, 1).empty()) << what << " late";
    const auto* const exchanged = std::get_if<Exchanged>(&sound.ops[i]);
    const bool loads =
        exchanged != nullptr && exchanged->kind == Exchange::sum_loads;  // of the forward: nothing computes them again
    const auto left = [&](const Op& op) { return reads(op) && !(loads && std::holds_alternative<Recompute>(op)); };
    const auto behind = std::find_if(early.ops.rend() - at, early.ops.rend(), left).base() - 1;
    std::rotate(behind, early.ops.begin() + at, early.ops.begin() + at + 1);
    EXPECT_FALSE(verify(early, model, 1).empty()) << what << " early";
  }
  return tried;
}

}  // namespace trireme::schedule::testing

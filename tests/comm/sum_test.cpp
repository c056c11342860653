// SPDX-License-Identifier: Apache-2.0
#include "comm/sum.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace trireme::comm {
namespace {

float number(float term) { return term; }
float number(Bf16 term) { return std::bit_cast<float>(std::uint32_t{term} << 16); }

/// Terms of any bits but those of NaN, with room to begin off a cache line.
template <class Term>
std::vector<std::vector<Term>> draw(std::mt19937& generator, std::size_t terms, std::int64_t count) {
  std::normal_distribution<float> values;
  std::vector<std::vector<Term>> drawn(terms, std::vector<Term>(static_cast<std::size_t>(count)));
  for (std::vector<Term>& term : drawn) {
    for (Term& element : term) {
      const float value = std::ldexp(values(generator), static_cast<int>(generator() % 40) - 20);
      if constexpr (sizeof(Term) == sizeof(float))
        element = value;
      else
        element = static_cast<Term>(std::bit_cast<std::uint32_t>(value) >> 16);
    }
  }
  return drawn;
}

/// Against one element after the other. into: the term that is `out`, too, or -1. offset: elements of out off a line.
template <class Term>
void expect_sums(std::mt19937& generator, std::size_t terms, std::int64_t count, bool accumulate, std::int64_t offset,
                 int into) {
  std::vector<std::vector<Term>> drawn = draw<Term>(generator, terms, count);
  std::vector<float> memory(static_cast<std::size_t>(count + 64), 3.0F);
  const auto past = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(memory.data()) % 64 / sizeof(float));
  float* const out = memory.data() + past + 16 + offset;
  std::vector<const Term*> starts;
  for (const std::vector<Term>& term : drawn) starts.push_back(term.data());
  if constexpr (sizeof(Term) == sizeof(float)) {
    if (into >= 0) {
      std::memcpy(out, drawn[static_cast<std::size_t>(into)].data(), static_cast<std::size_t>(count) * sizeof(float));
      starts[static_cast<std::size_t>(into)] = out;
    }
  }
  std::vector<float> expected;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    float sum = number(drawn[0][i]);
    for (std::size_t term = 1; term < terms; ++term) sum += number(drawn[term][i]);
    expected.push_back(accumulate ? out[i] + sum : sum);
  }
  sum_terms(std::span<const Term* const>(starts), out, count, accumulate);
  EXPECT_EQ(std::memcmp(out, expected.data(), expected.size() * sizeof(float)), 0)
      << terms << " terms of " << count << ", accumulate " << accumulate << ", offset " << offset << ", into " << into;
  EXPECT_EQ(out[-1], 3.0F);
  EXPECT_EQ(out[count], 3.0F);
}

TEST(Sums, AreThoseOfTheTermsInOrderToTheBit) {
  std::mt19937 generator(7);
  for (const std::int64_t count : {0, 1, 15, 31, 33, 2047, 2048, 2081, 65'537, 67'584, 70'003}) {
    for (const std::size_t terms : {1, 2, 3, 5}) {
      for (const bool accumulate : {false, true}) {
        for (const std::int64_t offset : {0, 5}) {
          expect_sums<float>(generator, terms, count, accumulate, offset, -1);
          expect_sums<Bf16>(generator, terms, count, accumulate, offset, -1);
        }
      }
      for (int into = 0; into < static_cast<int>(terms); ++into)
        expect_sums<float>(generator, terms, count, false, 0, into);
    }
  }
}

}  // namespace
}  // namespace trireme::comm

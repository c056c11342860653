// SPDX-License-Identifier: Apache-2.0
//
// ranks: 1 3 4
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

#include "every_transport.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/counters.hpp"

namespace trireme::comm {
namespace {

constexpr std::int64_t lengths[] = {0, 1, 7, 64, 1000, 40'001};

TEST_P(EveryTransport, AllToAllMovesMessagesOfAnyLength) {
  if (GetParam().staged) GTEST_SKIP() << "has no all-to-all";
  Counters counters;
  const auto collectives = open({.counters = &counters});
  const auto count = [](int from, int to, std::int64_t longest) { return (3 * from + 5 * to) % 7 * longest / 6; };
  const auto message = [](int from, int to, std::int64_t length) {
    std::vector<float> values(static_cast<std::size_t>(length));
    std::iota(values.begin(), values.end(), static_cast<float>(1'000'000 * from + 100'000 * to));
    return values;
  };
  const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
    to.insert(to.end(), from.begin(), from.end());
    return static_cast<std::int64_t>(from.size());
  };
  Bytes expected_bytes;
  for (const std::int64_t longest : lengths) {
    std::vector<std::int64_t> sent, received;
    std::vector<float> out, expected;
    for (int r = 0; r < size(); ++r) {
      sent.push_back(append(out, message(rank(), r, count(rank(), r, longest))));
      received.push_back(append(expected, message(r, rank(), count(r, rank(), longest))));
      if (r != rank()) expected_bytes += {4 * sent.back()};
    }
    std::vector<float> in(expected.size(), -1.0F);
    collectives->all_to_all(out.data(), sent, in.data(), received, DType::fp32);
    EXPECT_EQ(in, expected) << longest;
  }
  const Traffic counted = counters.snapshot().at("shard").at("all_to_all");
  EXPECT_EQ(counted, (Traffic{expected_bytes, static_cast<std::int64_t>(std::size(lengths))}));
}

TEST_P(EveryTransport, AnAllToAllHasACountForEveryRankAndOneOfWhatARankKeeps) {
  if (GetParam().staged) GTEST_SKIP() << "has no all-to-all";
  const auto collectives = open();
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<float> out(ranks + 1), in(ranks + 1);
  const auto exchange = [&](const std::vector<std::int64_t>& sent, const std::vector<std::int64_t>& received) {
    collectives->all_to_all(out.data(), sent, in.data(), received, DType::fp32);
  };
  const std::vector<std::int64_t> each(ranks, 1), more(ranks + 1, 1);
  std::vector<std::int64_t> kept = each;
  ++kept[static_cast<std::size_t>(rank())];
  EXPECT_THROW(exchange(more, each), BugError);
  EXPECT_THROW(exchange(each, more), BugError);
  EXPECT_THROW(exchange(kept, each), BugError);
  exchange(each, each);
}

}  // namespace
}  // namespace trireme::comm

// SPDX-License-Identifier: Apache-2.0
#include "support/test_transports.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <numeric>

#include "trireme/comm/collectives.hpp"
#include "trireme/comm/counters.hpp"

namespace trireme::comm {
namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(RecordingTransport, ComputesAsIfAllRanksHeldTheSame) {
  Collectives collectives(std::make_unique<RecordingTransport>(1, 3), "shard", "shard/gather", {});
  const std::vector<float> shard{1, 2};
  std::vector<float> whole(6);
  collectives.all_gather(shard.data(), whole.data(), 2, DType::fp32);
  EXPECT_EQ(whole, (std::vector<float>{1, 2, 1, 2, 1, 2}));

  std::iota(whole.begin(), whole.end(), 0.0F);
  std::vector<float> reduced{100, 100};
  collectives.reduce_scatter(whole.data(), reduced.data(), 2, DType::fp32, true);
  EXPECT_EQ(reduced, (std::vector<float>{106, 109}));

  std::vector<double> values{0.5, 2};
  collectives.sum(values);
  EXPECT_EQ(values, (std::vector<double>{1.5, 6}));
  EXPECT_EQ(collectives.gather_words(7), (std::vector<std::uint64_t>{7, 7, 7}));
}

TEST(RecordingTransport, RecordsItsCallsInOrder) {
  auto owned = std::make_unique<RecordingTransport>(0, 2);
  const RecordingTransport& recording = *owned;
  Collectives collectives(std::move(owned), "shard", "shard/reduce", {});
  std::vector<float> whole(8);
  collectives.reduce_scatter(whole.data(), whole.data(), 4, DType::fp32, false);
  collectives.all_gather(whole.data(), whole.data(), 4, DType::bf16);
  collectives.barrier();
  const std::vector<RecordedCall> expected{{.operation = "reduce_scatter", .items = 8},
                                           {.operation = "all_gather", .items = 16},
                                           {.operation = "barrier", .items = 0}};
  EXPECT_EQ(recording.calls(), expected);
}

TEST(PacedTransport, WithholdsCompletionForSizeOverBandwidthWithoutUsingTheCpu) {
  // 2 ranks: half of the whole is sent, 1 MB at 20 MB/s = 50 ms, and 10 ms of latency.
  const Pace pace{.bytes_per_second = 20e6, .latency_seconds = 0.01};
  Collectives collectives(paced(std::make_unique<RecordingTransport>(0, 2), pace), "shard", "shard/gather", {});
  EXPECT_EQ(collectives.transport_name(), "paced recording");
  std::vector<float> whole(500'000, 1.0F);
  const double cpu = cpu_seconds();
  const auto began = std::chrono::steady_clock::now();
  collectives.all_gather(whole.data(), whole.data(), 250'000, DType::fp32);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took.count(), 0.0599);
  EXPECT_LT(cpu_seconds() - cpu, 0.03);
}

TEST(PacedTransport, CountsATransferOnce) {
  Counters counters;
  Collectives collectives(paced(std::make_unique<RecordingTransport>(0, 2), {.bytes_per_second = 1e12}), "shard",
                          "shard/gather", {.counters = &counters});
  std::vector<float> whole(8);
  collectives.all_gather(whole.data(), whole.data(), 4, DType::fp32);
  const TrafficTable expected{{"shard", {{"all_gather", {.bytes = {16}, .calls = 1}}}}};
  EXPECT_EQ(counters.snapshot(), expected);
}

}  // namespace
}  // namespace trireme::comm

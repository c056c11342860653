// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks of a group, as a pipeline sends them: in order, counted once, on two lanes at a time.
//
// ranks: 2 3
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/test_transports.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/counters.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::comm {
namespace {

class Messages : public testing::Test {
 protected:
  [[nodiscard]] Collectives lane(const char* name, Services services = {}) {
    return {make_transport(world_, {}, TransportChoice::mpi), "pipeline", name, std::move(services)};
  }
  [[nodiscard]] int next() const { return (world_.rank() + 1) % world_.size(); }
  [[nodiscard]] int before() const { return (world_.rank() + world_.size() - 1) % world_.size(); }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
};

// Every rank sends to the next one while it receives from the one before it; small and large ones in turn.
TEST_F(Messages, ArriveInOrderOnTwoLanesAndAreCountedByTheirSender) {
  Counters counters;
  Collectives send = lane("pipeline/send", {.counters = &counters}),
              receive = lane("pipeline/receive", {.counters = &counters});
  constexpr int rounds = 40;
  const auto count_of = [](int round) { return static_cast<std::size_t>(round % 3 == 0 ? 200'000 : 1 + round); };
  int wrong = 0;
  std::thread receiver([&] {
    for (int round = 0; round < rounds; ++round) {
      std::vector<float> values(count_of(round));
      receive.receive(values.data(), Bytes{static_cast<std::int64_t>(4 * values.size())}, before());
      for (const float value : values) wrong += value != static_cast<float>(100 * round + before());
    }
  });
  std::int64_t sent = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<float> values(count_of(round), static_cast<float>(100 * round + world_.rank()));
    const Bytes bytes{static_cast<std::int64_t>(4 * values.size())};
    send.send(values.data(), bytes, next());
    sent += bytes.value;
  }
  receiver.join();
  EXPECT_EQ(wrong, 0);
  const TrafficTable counted = counters.snapshot();
  EXPECT_EQ(counted.at("pipeline").at("send"), (Traffic{.bytes = {sent}, .calls = rounds}));
  EXPECT_EQ(counted.at("pipeline").size(), 1U) << "a receive is its sender's";
}

TEST_F(Messages, ThatDoNotComeNameTheirSender) {
  std::string said;
  Collectives receive =
      lane("pipeline/receive",
           {.deadline = {.timeout_seconds = 0.2, .on_hang = [&](const std::string& text) { said = text; }}});
  float value = 0;
  EXPECT_THROW(receive.receive(&value, Bytes{4}, before()), HangError);
  EXPECT_THAT(said, testing::HasSubstr("receive #1 (4 B) on pipeline/receive"));
  EXPECT_THAT(said, testing::HasSubstr("still waits for " + world_.name_of(before())));
}

TEST_F(Messages, AreRefusedByTransportsThatHaveNone) {
  Collectives fake(std::make_unique<RecordingTransport>(0, 2), "pipeline", "pipeline/send", {});
  const float value = 0;
  EXPECT_THROW(fake.send(&value, Bytes{4}, 1), BugError);
}

}  // namespace
}  // namespace trireme::comm

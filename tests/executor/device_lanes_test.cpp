// SPDX-License-Identifier: Apache-2.0
//
// Lanes as streams, proved without a GPU: streams and events of a simulated device that only notes what is ordered
// after what (Lamport 1978), and the claim that every need of a schedule is.
#include "trireme/executor/device_lanes.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "executor/segments.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/pipeline/build.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::executor::device_lanes_test {
namespace {

constexpr auto simulated = c10::DeviceType::PrivateUse1;

/// Completed work of every stream.
using Clock = std::map<c10::StreamId, int>;

void join(Clock& clock, const Clock& other) {
  for (const auto& [stream, count] : other) clock[stream] = std::max(clock[stream], count);
}

struct Ordering {
  std::map<c10::StreamId, Clock> streams;
  Clock host;  ///< what the host has waited for
  c10::StreamId last = 0;
  int recorded = 0;
};
Ordering& ordering() {
  static Ordering all;
  return all;
}

class SimulatedDevice final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return simulated; }
  c10::Device exchangeDevice(c10::Device device) const override { return device; }
  c10::Device getDevice() const override { return {simulated, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override { return getDefaultStream(device); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, ++ordering().last);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Clock;
    *static_cast<Clock*>(*event) = ordering().streams[stream.id()];
    ++ordering().recorded;
  }
  void block(void* event, const c10::Stream& stream) const override {
    join(ordering().streams[stream.id()], *static_cast<Clock*>(event));
  }
  void synchronizeEvent(void* event) const override { join(ordering().host, *static_cast<Clock*>(event)); }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Clock*>(event); }
  void synchronizeStream(const c10::Stream& stream) const override {
    join(ordering().host, ordering().streams[stream.id()]);
  }
  double elapsedTime(void*, void*, c10::DeviceIndex) const override { return 1.0; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, SimulatedDevice)

struct Case {
  std::string name;
  schedule::Policy policy;
  int microbatches = 2;
  std::optional<schedule::PipelineKind> pipeline{};  ///< of two ranks
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::vector<Case> cases() {
  schedule::Policy offload{.sync = config::SyncPolicy::immediate_all, .replicas = 2};
  offload.offload.what = config::Offload::parameters;
  schedule::Policy activations;
  activations.activation_offload.on = true;
  return {{.name = "Immediate", .policy = {}},
          {.name = "Deferred", .policy = {.sync = config::SyncPolicy::deferred}},
          {.name = "Replicated", .policy = {.replicas = 2}, .microbatches = 1},
          {.name = "UpdatesBeside", .policy = {.updates_beside = true}},
          {.name = "InPlace", .policy = {.in_place = {.shards = 1}, .updates_beside = true}},
          {.name = "TransientGradients", .policy = {.transient_gradients = true, .updates_beside = true}},
          {.name = "Offloaded", .policy = offload},
          {.name = "ActivationsOffloaded", .policy = activations},
          {.name = "OneFOneB", .policy = {}, .microbatches = 6, .pipeline = schedule::PipelineKind::one_f_one_b},
          {.name = "Zbv", .policy = {}, .microbatches = 6, .pipeline = schedule::PipelineKind::zbv}};
}

struct List {
  model::Model model;
  schedule::Schedule schedule;
};
/// The only rank's list, or the first of a pipeline's.
List list_of(const Case& c) {
  const model::Model whole = model::build(
      config::Model{.vocab_size = 97, .hidden_size = 40, .intermediate_size = 56, .layers = 4, .heads = 4});
  if (!c.pipeline) return {whole, schedule::build_step(whole, c.microbatches, c.policy)};
  const schedule::Pipeline pipeline{
      .kind = *c.pipeline, .ranks = 2, .chunks = schedule::default_chunks(*c.pipeline), .microbatches = c.microbatches};
  const auto chunks = model::cut_by_flops(whole, pipeline.all_chunks(), 64);
  std::vector<model::PipelinePart> parts = schedule::pipeline_parts(whole, chunks, pipeline);
  std::vector<schedule::Schedule> lists =
      schedule::build_pipeline(parts, pipeline, schedule::flop_costs(whole, chunks, 64), c.policy);
  return {std::move(parts.front().model), std::move(lists.front())};
}

class DeviceLanesOf : public testing::TestWithParam<Case> {
 protected:
  DeviceLanesOf() { ordering() = {}; }

  /// Launches four steps as one thread does, calling check(to, step) after each op; `happened` knows those before. The
  /// ops of `segments` are launched as one, with the first of them.
  template <class Check>
  void launch(const std::vector<schedule::Need>& needs, Check check,
              const std::vector<std::vector<int>>& segments = {}) {
    DeviceLanes lanes(schedule_, needs, {simulated, 0}, on_host_, false);
    lanes.start();
    std::map<int, std::vector<int>> with;  // what is launched, by the first op
    for (int op = 0; op < static_cast<int>(schedule_.ops.size()); ++op) with[op] = {op};
    for (const std::vector<int>& segment : segments) {
      for (const int op : segment) with.erase(op);
      with[segment.front()] = segment;
    }
    for (std::int64_t step = 0; step < 4; ++step)
      for (const auto& [first, ops] : with) {
        lanes.begin(first, step);
        for (const int op : ops) {
          const auto stream = lanes.stream(op);
          Happened& now = happened_[{step, op}];
          if (stream) {
            Clock& clock = ordering().streams[stream->id()];
            ++clock[stream->id()];
            now = {stream->id(), clock[stream->id()], clock};
          } else {
            now = {-1, 0, ordering().host};
          }
          check(op, step);
        }
        lanes.end(first, ops.back(), step);
      }
  }

  struct Happened {
    c10::StreamId stream = -1;  ///< -1: on the host, which has done it
    int count = 0;              ///< of its stream
    Clock before;
  };
  [[nodiscard]] bool is_after(int to, std::int64_t step, int from, std::int64_t before) {
    const Happened& earlier = happened_.at({before, from});
    if (earlier.stream < 0) return true;  // the host launches `to` after that
    const Clock& known = happened_.at({step, to}).before;
    const auto found = known.find(earlier.stream);
    return found != known.end() && found->second >= earlier.count;
  }

  List list_ = list_of(GetParam());
  const model::Model& model_ = list_.model;
  const schedule::Schedule& schedule_ = list_.schedule;
  std::map<std::pair<std::int64_t, int>, Happened> happened_;  // by step and op
  std::vector<bool> on_host_;
};

TEST_P(DeviceLanesOf, MakeEveryOpWaitForAllThatItNeeds) {
  const std::vector<schedule::Need> needs = schedule::needs(schedule_, model_);
  int crossing = 0;
  launch(needs, [&](int op, std::int64_t step) {
    for (const schedule::Need& need : needs) {
      if (need.to != op || need.distance > step) continue;
      EXPECT_TRUE(is_after(op, step, need.from, step - need.distance))
          << schedule::print(schedule_.ops[static_cast<std::size_t>(op)], model_) << " of step " << step
          << " ran before " << schedule::print(schedule_.ops[static_cast<std::size_t>(need.from)], model_);
      crossing += schedule::lane_of(schedule_.ops[static_cast<std::size_t>(op)]) !=
                  schedule::lane_of(schedule_.ops[static_cast<std::size_t>(need.from)]);
    }
  });
  EXPECT_GT(crossing, 20);
  EXPECT_LT(ordering().recorded, 4 * 3 * static_cast<int>(schedule_.ops.size()))
      << "one event an op, two that time waits";
}

TEST_P(DeviceLanesOf, MakeTheHostWaitWhereACollectiveWorksOnItsMemory) {
  for (const schedule::Op& op : schedule_.ops) on_host_.push_back(schedule::lane_of(op) == schedule::Lane::reduce);
  const std::vector<schedule::Need> needs = schedule::needs(schedule_, model_);
  launch(needs, [&](int op, std::int64_t step) {
    for (const schedule::Need& need : needs)
      EXPECT_TRUE(need.to != op || need.distance > step || is_after(op, step, need.from, step - need.distance));
  });
}

TEST_P(DeviceLanesOf, MakeSegmentsWaitForAllThatTheirOpsNeed) {
  const std::vector<schedule::Need> needs = schedule::needs(schedule_, model_);
  const auto check = [&](int op, std::int64_t step) {
    for (const schedule::Need& need : needs)
      EXPECT_TRUE(need.to != op || need.distance > step || is_after(op, step, need.from, step - need.distance))
          << schedule::print(schedule_.ops[static_cast<std::size_t>(op)], model_) << " of step " << step
          << " ran before " << schedule::print(schedule_.ops[static_cast<std::size_t>(need.from)], model_);
  };
  launch(needs, check, segments(schedule_, needs));
}

TEST_P(DeviceLanesOf, LetLanesOverlapWithoutNeeds) {
  // Without needs nothing waits: then some collective is not ordered after the computation before it.
  bool beside = false;
  launch({}, [&](int op, std::int64_t step) {
    if (op == 0 || schedule::lane_of(schedule_.ops[static_cast<std::size_t>(op)]) != schedule::Lane::reduce) return;
    for (int earlier = 0; earlier < op; ++earlier) beside = beside || !is_after(op, step, earlier, step);
  });
  EXPECT_TRUE(beside);
}

INSTANTIATE_TEST_SUITE_P(, DeviceLanesOf, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trireme::executor::device_lanes_test

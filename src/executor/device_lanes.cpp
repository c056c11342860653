// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/device_lanes.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>

#include "trireme/schedule/access.hpp"

namespace trireme::executor {
namespace {

using schedule::Lane;

/// The step in progress, the next one that lanes may run ahead into, and the previous one, still used by waits.
constexpr std::int64_t steps_under_way = 3;

c10::Event timing_event(c10::Device device) { return {device.type(), c10::EventFlag::BACKEND_DEFAULT}; }

std::optional<c10::Stream> stream_of(Lane lane, c10::Device device) {
  const c10::impl::VirtualGuardImpl gpu(device.type());
  switch (lane) {
    case Lane::compute:
    // Tensors are allocated on one of the two lanes and freed on the other, twice a stage: on separate streams each
    // would be kept from reuse (record_stream) while the host is a microbatch ahead, and a missing one would be a
    // silent race.
    case Lane::tensor:
    case Lane::context:
    case Lane::expert: return gpu.getDefaultStream(device);
    case Lane::gather:
    case Lane::reduce:
    case Lane::send:
    case Lane::receive: return gpu.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
    case Lane::device_to_host:
    case Lane::optimizer:
    case Lane::host_to_device: return gpu.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
    case Lane::host: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

DeviceLanes::DeviceLanes(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs,
                         c10::Device device, const std::vector<bool>& on_host, bool record_timeline)
    : device_(device),
      waits_(schedule.ops.size()),
      events_(schedule.ops.size()),
      exposed_(schedule.ops.size()),
      record_timeline_(record_timeline),
      began_(schedule.ops.size()) {
  for (const Lane lane : schedule::all_lanes) streams_.push_back(stream_of(lane, device));
  for (const schedule::Op& op : schedule.ops) of_pipeline_.push_back(waits_for_pipeline(op));
  const auto ops = static_cast<int>(schedule.ops.size());
  const auto lane_of = [&](int op) { return schedule::lane_of(schedule.ops[static_cast<std::size_t>(op)]); };
  for (int op = 0; op < ops; ++op)
    stream_of_op_.push_back(!on_host.empty() && on_host[static_cast<std::size_t>(op)]
                                ? std::nullopt
                                : streams_[static_cast<std::size_t>(lane_of(op))]);
  for (const schedule::Need& need : needs) {
    const auto from = stream(need.from);
    if (!from || from == stream(need.to)) continue;  // synchronized by the host, or by the order of the stream
    std::vector<schedule::Need>& waits = waits_[static_cast<std::size_t>(need.to)];
    const auto same = std::find_if(waits.begin(), waits.end(),
                                   [&](const schedule::Need& other) { return stream(other.from) == from; });
    if (same == waits.end())
      waits.push_back(need);
    else if (need.from - need.distance * ops > same->from - same->distance * ops)
      *same = need;
  }
  for (const auto& waits : waits_)
    for (const schedule::Need& need : waits) {
      auto& events = events_[static_cast<std::size_t>(need.from)];
      while (static_cast<std::int64_t>(events.size()) < steps_under_way) events.emplace_back(device.type());
    }
  for (int op = 0; op < ops; ++op)
    if (lane_of(op) == Lane::compute && !waits_[static_cast<std::size_t>(op)].empty())
      exposed_[static_cast<std::size_t>(op)].emplace(Exposed{timing_event(device), timing_event(device)});
  if (record_timeline_) begin_clock();
}

c10::Event& DeviceLanes::event(int op, std::int64_t step) {
  return events_[static_cast<std::size_t>(op)][static_cast<std::size_t>(step % steps_under_way)];
}

void DeviceLanes::start() {
  const std::optional<c10::Stream> compute = streams_.front();
  c10::Event filled(device_.type());
  filled.record(*compute);
  for (const std::optional<c10::Stream>& lane : streams_)
    if (lane && *lane != *compute) filled.block(*lane);
}

void DeviceLanes::begin(int first, std::int64_t step) {
  const std::optional<c10::Stream> here = stream(first);
  auto& exposed = exposed_[static_cast<std::size_t>(first)];
  if (exposed) exposed->before.record(*here);
  for (const schedule::Need& need : waits_[static_cast<std::size_t>(first)]) {
    if (need.distance > step) continue;  // there is no earlier step
    c10::Event& done = event(need.from, step - need.distance);
    if (here)
      done.block(*here);
    else
      done.synchronize();
  }
  if (exposed) {
    exposed->after.record(*here);
    waited_.push_back(first);
  }
  if (!record_timeline_ || !here) return;
  auto& began = began_[static_cast<std::size_t>(first)];
  began.emplace(timing_event(device_));
  began->record(*here);
}

void DeviceLanes::end(int first, int last, std::int64_t step) {
  const std::optional<c10::Stream> here = stream(last);
  if (!here) return;
  if (!events_[static_cast<std::size_t>(last)].empty()) event(last, step).record(*here);
  if (!record_timeline_) return;
  c10::Event ended = timing_event(device_);
  ended.record(*here);
  const std::scoped_lock lock(mutex_);
  timed_.push_back({step, first, last, std::move(*began_[static_cast<std::size_t>(first)]), std::move(ended),
                    device::memory_use().spaces});
}

Idle DeviceLanes::idle() {
  c10::impl::VirtualGuardImpl(device_.type()).synchronizeStream(*streams_.front());
  Idle idle;
  for (const int op : waited_) {
    const Exposed& exposed = *exposed_[static_cast<std::size_t>(op)];
    double& seconds = of_pipeline_[static_cast<std::size_t>(op)] ? idle.pipeline : idle.collectives;
    seconds += exposed.before.elapsedTime(exposed.after) * 1e-3;
  }
  waited_.clear();
  return idle;
}

void DeviceLanes::finish(const std::vector<int>& ops) {
  std::vector<c10::Stream> waited_for;
  for (const int op : ops) {
    const std::optional<c10::Stream> here = stream(op);
    if (!here || std::find(waited_for.begin(), waited_for.end(), *here) != waited_for.end()) continue;
    waited_for.push_back(*here);
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeStream(*here);
  }
}

void DeviceLanes::begin_clock() {
  const std::optional<c10::Stream> compute = streams_.front();
  clock_.emplace(timing_event(device_));
  clock_->record(*compute);
  clock_->synchronize();
  clock_on_host_ = timeline::Clock::now();
}

void DeviceLanes::drain(timeline::Timeline& timeline) {
  const c10::impl::VirtualGuardImpl gpu(device_.type());
  for (const std::optional<c10::Stream>& lane : streams_)
    if (lane) gpu.synchronizeStream(*lane);
  waited_.clear();
  if (!record_timeline_) return;
  const auto at = [&](const c10::Event& event) {
    const std::chrono::duration<double, std::milli> since(clock_->elapsedTime(event));
    return clock_on_host_ + std::chrono::duration_cast<timeline::Clock::duration>(since);
  };
  const std::scoped_lock lock(mutex_);
  for (const Timed& timed : timed_)
    timeline.record({timed.step, timed.op, timed.last, at(timed.begin), at(timed.end), timed.memory});
  timed_.clear();
  begin_clock();
}

}  // namespace trireme::executor

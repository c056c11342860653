// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "trireme/executor/driver.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/op.hpp"
#include "trireme/timeline/timeline.hpp"

namespace trireme::executor {

/// The lanes of a schedule as streams of a GPU. An op has "ended" for the host when its work is launched; its needs of
/// other lanes become event waits of its stream, so that the host does not wait. Only work on host memory waits for
/// events on its thread: the host lane, and collectives of offloaded gradients. Gather and reduce lanes have streams of
/// higher priority: their operations are small, and compute waits for them.
///
/// The compute lane is the device's default stream, which also runs everything outside of a step. The tensor lane is
/// the same stream: its tensors are allocated and freed on both lanes.
class DeviceLanes {
 public:
  /// on_host: by op, whether it works on the host's memory although its lane is none of the host's; empty: none does.
  DeviceLanes(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs, c10::Device device,
              const std::vector<bool>& on_host, bool record_timeline);

  /// The stream of an op; nothing for an op on host memory.
  [[nodiscard]] std::optional<c10::Stream> stream(int op) const { return stream_of_op_[static_cast<std::size_t>(op)]; }

  /// Lanes begin after the work on the default stream: parameters that were filled, restored or read in between. Before
  /// the first step after lanes were idle.
  void start();
  /// Before and after the calling thread launches ops of its lane, of which only `first` needs something of other lanes
  /// and only `last` is needed there.
  void begin(int first, std::int64_t step);
  void end(int first, int last, std::int64_t step);

  /// Time that the compute lane waited for other lanes since the last call. Synchronizes with that lane.
  [[nodiscard]] Idle idle();
  /// Waits for all that the streams of these ops hold.
  void finish(const std::vector<int>& ops);
  /// Returns when all lanes are idle, and adds their records to `timeline`. No lane launches meanwhile.
  void drain(timeline::Timeline& timeline);

 private:
  struct Timed {
    std::int64_t step;
    int op, last;
    c10::Event begin, end;
    std::array<device::SpaceUse, device::space_count> memory;
  };
  /// Recorded before and after the compute lane waits for others.
  struct Exposed {
    c10::Event before, after;
  };
  [[nodiscard]] c10::Event& event(int op, std::int64_t step);
  void begin_clock();

  c10::Device device_;
  std::vector<std::optional<c10::Stream>> stream_of_op_;
  std::vector<std::optional<c10::Stream>> streams_;  ///< by lane
  std::vector<std::vector<schedule::Need>> waits_;   ///< by op: the last op of each other lane that it needs
  std::vector<std::vector<c10::Event>> events_;      ///< by op, one for each of the steps that may be in progress
  std::vector<std::optional<Exposed>> exposed_;      ///< by op of the compute lane that waits
  std::vector<int> waited_;                          ///< ops whose `exposed_` were recorded
  std::vector<bool> of_pipeline_;                    ///< by op: `waits_for_pipeline`
  bool record_timeline_;
  std::mutex mutex_;
  std::vector<Timed> timed_;
  std::vector<std::optional<c10::Event>> began_;  ///< by op
  std::optional<c10::Event> clock_;               ///< reference point of device and host clocks
  timeline::Clock::time_point clock_on_host_{};
};

}  // namespace trireme::executor

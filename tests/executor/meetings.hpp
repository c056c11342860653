// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "steps.hpp"

/// Proofs that a lane can go on while another one is kept waiting: nothing is timed.
namespace trireme::executor::test {

/// Records the begun ops of all lanes; lanes can wait for one another here.
class Begun {
 public:
  void mark(int op, std::int64_t step) {
    const std::scoped_lock lock(mutex_);
    begun_.insert({step, op});
    changed_.notify_all();
  }
  /// False when the op has not begun after a long while.
  [[nodiscard]] bool await(int op, std::int64_t step) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return begun_.contains({step, op}); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::pair<std::int64_t, int>> begun_;
};

/// Before op `waits` begins in step `step`, op `needed` of step `needed_step` must have begun.
struct Rendezvous {
  int waits = 0;
  std::int64_t step = 0;
  int needed = 0;
  std::int64_t needed_step = 0;
  std::string text;
};

/// The spans of `steps` steps by (step, op).
using Spans = std::map<std::pair<std::int64_t, int>, timeline::Span>;
inline Spans spans_of(Steps& steps, int count) {
  (void)steps.curve(count);
  Spans spans;
  for (const timeline::Span& span : steps.executor().timeline().take()) spans[{span.step, span.op}] = span;
  EXPECT_EQ(spans.size(), static_cast<std::size_t>(count * steps.ops()));
  return spans;
}

/// Runs `count` steps in which lanes wait for each other according to `setup`, and expects no wait to time out. A
/// recorded timeline has to show that awaited spans begin before the end of the waiting ones.
inline void expect_meetings(const mpi::Communicator& world, int count, Setup setup,
                            const std::function<std::vector<Rendezvous>(const Steps&)>& meetings_of) {
  Begun begun;
  std::vector<Rendezvous> meetings;
  setup.options.on_op = [&](int op, std::int64_t step) {
    begun.mark(op, step);
    for (const Rendezvous& meeting : meetings)
      if (meeting.waits == op && meeting.step == step) {
        EXPECT_TRUE(begun.await(meeting.needed, meeting.needed_step)) << meeting.text;
      }
  };
  const bool recorded = setup.options.record_timeline;
  Steps steps(world, std::move(setup));
  meetings = meetings_of(steps);
  if (!recorded) {
    (void)steps.curve(count);
    return;
  }
  const Spans spans = spans_of(steps, count);
  for (const Rendezvous& meeting : meetings)
    EXPECT_LT(spans.at({meeting.needed_step, meeting.needed}).begin, spans.at({meeting.step, meeting.waits}).end)
        << "in the timeline, " << meeting.text;
}

}  // namespace trireme::executor::test

// SPDX-License-Identifier: Apache-2.0
#include "cli/start/by_first_rank.hpp"

#include <chrono>

#include "trireme/base/error.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/supervise/heartbeat.hpp"

namespace trireme::cli {

std::string by_first_rank(const mpi::Communicator& world, double timeout_seconds,
                          const std::function<std::string()>& work, const std::function<void()>& mark) {
  std::string text;
  if (world.rank() != 0) {
    while ((text = mpi::broadcast_text(world, {})).empty()) mark();  // an empty one: still at work
    return text;
  }
  {
    using Clock = supervise::Heartbeat::Clock;
    const std::chrono::duration<double> pause(timeout_seconds / 8);
    auto told = Clock::now();
    supervise::Heartbeat no_file("", timeout_seconds);
    const supervise::FileWork files(no_file, [&] {
      if (Clock::now() - told < pause) return;
      told = Clock::now();
      mark();
      (void)mpi::broadcast_text(world, {});
    });
    text = work();
  }
  invariant(!text.empty(), "what the first rank found is not empty");
  return mpi::broadcast_text(world, std::move(text));
}

}  // namespace trireme::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/start/by_first_rank.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "trireme/base/error.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/together.hpp"
#include "trireme/supervise/heartbeat.hpp"

namespace trireme::cli {

namespace {

constexpr char found = 'T', failed = 'E';  ///< what a text begins with that is broadcast

/// What was broadcast, as result or error. prints: on the first rank.
std::string result_of(const std::string& text, bool prints) {
  if (text.front() == found) return text.substr(1);
  const std::size_t blank = text.find(' ');
  throw mpi::SharedError(static_cast<ExitCode>(std::atoi(text.c_str() + 1)), text.substr(blank + 1), prints);
}

}  // namespace

std::string by_first_rank(const mpi::Communicator& world, double timeout_seconds,
                          const std::function<std::string()>& work, const std::function<void()>& mark) {
  std::string text;
  if (world.rank() != 0) {
    while ((text = mpi::broadcast_text(world, {})).empty()) mark();  // an empty one: still at work
    return result_of(text, false);
  }
  {
    using Clock = supervise::Heartbeat::Clock;
    const std::chrono::duration<double> pause(timeout_seconds / 8);
    auto told = Clock::now();
    supervise::Heartbeat no_file("", timeout_seconds, 0);
    const supervise::FileWork files(no_file, [&] {
      if (Clock::now() - told < pause) return;
      told = Clock::now();
      mark();
      (void)mpi::broadcast_text(world, {});
    });
    try {
      text = found + work();
    } catch (const Error& error) {
      text = fmt::format("{}{} {}", failed, static_cast<int>(error.code()), error.what());
    }
  }
  return result_of(mpi::broadcast_text(world, std::move(text)), true);
}

}  // namespace trireme::cli

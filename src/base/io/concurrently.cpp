// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/concurrently.hpp"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace trireme::io {

void concurrently(std::size_t count, const std::function<void(std::size_t)>& work) {
  constexpr std::size_t most_threads = 16, worth_a_thread = 64;
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> threads;
  try {
    for (std::size_t i = 1; i < std::min(most_threads, count / worth_a_thread); ++i) threads.emplace_back(run);
  } catch (const std::system_error&) {
    // Those that run, and this one.
  }
  run();
}

}  // namespace trireme::io

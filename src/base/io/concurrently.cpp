// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/concurrently.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "trireme/base/io/handled_files.hpp"

namespace trireme::io {

void concurrently(std::size_t count, const std::function<void(std::size_t)>& work) {
  constexpr std::size_t most_threads = 16, worth_a_thread = 64;
  std::atomic<std::size_t> next = 0;
  std::exception_ptr first;
  std::mutex mutex;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
        count_handled_file();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (std::size_t i = 1; i < std::min(most_threads, count / worth_a_thread); ++i) threads.emplace_back(run);
  } catch (const std::system_error&) {
    // Continues with the running threads, and this one.
  }
  run();
  threads.clear();  // joins them
  if (first) std::rethrow_exception(first);
}

}  // namespace trireme::io

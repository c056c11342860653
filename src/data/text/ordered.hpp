// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace trireme::data::text {

/// Work done by several threads whose results are taken, by the thread that submits it, in the order of submission.
template <class Result>
class Ordered {
 public:
  /// take: called with every result. At most three pieces of work per thread wait or run at a time.
  Ordered(int threads, std::function<void(Result)> take)
      : take_(std::move(take)), most_(3 * static_cast<std::size_t>(threads)) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }

  /// Rethrows exceptions of earlier work.
  void submit(std::function<Result()> work) {
    if (results_.size() >= most_) take_first();
    std::packaged_task<Result()> task(std::move(work));
    results_.push_back(task.get_future());
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  /// Takes the remaining results. Rethrows exceptions of the work.
  void finish() {
    while (!results_.empty()) take_first();
  }

 private:
  void take_first() {
    std::future<Result> first = std::move(results_.front());
    results_.pop_front();
    take_(first.get());
  }

  void run(const std::stop_token& stop) {
    while (true) {
      std::packaged_task<Result()> task;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return !tasks_.empty(); }) || stop.stop_requested()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::function<void(Result)> take_;
  std::size_t most_;
  std::deque<std::future<Result>> results_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::packaged_task<Result()>> tasks_;
  std::vector<std::jthread> threads_;  ///< last: they end before their members are destroyed
};

}  // namespace trireme::data::text

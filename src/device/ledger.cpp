// SPDX-License-Identifier: Apache-2.0
#include "device/ledger.hpp"

#include <atomic>

#include "trireme/device/history.hpp"

namespace trireme::device {

void Ledger::charge(Account account, Bytes bytes) noexcept {
  const std::scoped_lock guard(lock_);
  add(account, bytes);
}

void Ledger::discharge(Account account, Bytes bytes) noexcept {
  const std::scoped_lock guard(lock_);
  take(account, bytes);
}

void Ledger::move(Account from, Account to, Bytes bytes) noexcept {
  const std::scoped_lock guard(lock_);
  take(from, bytes);
  add(to, bytes);
}

void Ledger::add(Account account, Bytes bytes) noexcept {
  SpaceUse& use = spaces_[static_cast<std::size_t>(account.space)];
  use.current[account.category] += bytes;
  use.total += bytes;
  if (use.current[account.category] > use.peak[account.category]) {
    use.peak[account.category] = use.current[account.category];
    use.peak_ops.category[static_cast<std::size_t>(account.category)] = current_operation().op;
  }
  if (use.total >= use.peak_total) {
    if (use.total > use.peak_total) use.peak_ops.total = current_operation().op;
    use.peak_total = use.total;
    use.at_peak = use.current;
  }
}

void Ledger::take(Account account, Bytes bytes) noexcept {
  SpaceUse& use = spaces_[static_cast<std::size_t>(account.space)];
  use.current[account.category] = use.current[account.category] - bytes;
  use.total = use.total - bytes;
}

std::array<SpaceUse, space_count> Ledger::use() const {
  const std::scoped_lock guard(lock_);
  return spaces_;
}

void Ledger::reset_peaks() {
  const std::scoped_lock guard(lock_);
  for (SpaceUse& use : spaces_) {
    use.peak = use.at_peak = use.current;
    use.peak_ops = {};
    use.peak_total = use.total;
  }
}

namespace {

std::atomic<bool> host_memory_apart = false;

}  // namespace

void set_host_memory_apart() { host_memory_apart = true; }

Account in_host_memory(Account account) noexcept {
  return {account.category, host_memory_apart.load(std::memory_order_relaxed) ? Space::host : account.space};
}

Ledger& ledger() {
  static Ledger& books = *new Ledger;
  return books;
}

}  // namespace trireme::device

// SPDX-License-Identifier: Apache-2.0
#include "device/ledger.hpp"

#include <algorithm>

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
  use.peak[account.category] = std::max(use.peak[account.category], use.current[account.category]);
  if (use.total >= use.peak_total) {
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
    use.peak_total = use.total;
  }
}

Ledger& ledger() {
  static Ledger& books = *new Ledger;
  return books;
}

}  // namespace trireme::device

// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_charges.hpp"

#include "device/ledger.hpp"
#include "device/recorder.hpp"

namespace trireme::device {

void GpuCharges::allocated(const void* data, std::size_t size) {
  const Charged charged{{current_account().category, Space::device}, {static_cast<std::int64_t>(size)}};
  const std::scoped_lock lock(mutex_);
  charges_[data] = charged;
  ledger().charge(charged.account, charged.bytes);
  recorder().allocated(data, charged.bytes, charged.account);
}

void GpuCharges::freed(const void* data) {
  const std::scoped_lock lock(mutex_);
  const auto found = charges_.find(data);
  if (found == charges_.end()) return;
  ledger().discharge(found->second.account, found->second.bytes);
  recorder().freed(data, found->second.bytes, found->second.account);
  charges_.erase(found);
}

void GpuCharges::recharge(const void* data, Category category) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto found = charges_.find(data);
  if (found == charges_.end()) return;
  Charged& charged = found->second;
  const Account account{category, Space::device};
  ledger().move(charged.account, account, charged.bytes);
  recorder().freed(data, charged.bytes, charged.account);
  recorder().allocated(data, charged.bytes, account);
  charged.account = account;
}

GpuCharges& gpu_charges() {
  static GpuCharges& all = *new GpuCharges;
  return all;
}

}  // namespace trireme::device

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checksum.hpp"

#include <xxhash.h>

#include "trireme/base/error.hpp"

namespace trireme::checkpoint {

std::uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw EnvironmentError("no memory for a checksum's state");
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_));
}

Checksum::~Checksum() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_)); }

}  // namespace trireme::checkpoint

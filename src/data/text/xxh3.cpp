// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/xxh3.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/error.hpp"

namespace trireme::data {

std::uint64_t xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Xxh3::Xxh3() : state_(XXH3_createState(), [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }) {
  if (state_ == nullptr) throw EnvironmentError("no memory for the state of a hash");
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void Xxh3::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}

std::uint64_t Xxh3::value() const { return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_.get())); }

std::string Xxh3::hex() const { return fmt::format("{:016x}", value()); }

}  // namespace trireme::data

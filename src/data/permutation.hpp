// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::data {

/// The image of `position` in [0, count) in the permutation of `epoch` under `key`: a bijection of [0, count), another
/// for each epoch. Closed form without tables: a Feistel network with Philox as the round function, over the smallest
/// square that holds [0, count), walked until it is back inside (Black and Rogaway, "Ciphers with arbitrary finite
/// domains", CT-RSA 2002).
[[nodiscard]] std::int64_t permuted(std::uint64_t key, std::int64_t epoch, std::int64_t position, std::int64_t count);

}  // namespace trireme::data

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

/// Philox4x32-10: a counter-based random function (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
/// 2011). Returns the same four words for a (key, counter) on every machine, so a stream is independent of the mesh.
[[nodiscard]] std::array<std::uint32_t, 4> philox4x32(std::uint64_t key, std::uint64_t counter_low,
                                                      std::uint64_t counter_high = 0);

/// Key of the stream `name` under `seed`.
[[nodiscard]] std::uint64_t stream_key(std::uint64_t seed, std::string_view name);

/// The `element`-th standard normal number of the stream (Box-Muller over Philox words; fp64 inside).
[[nodiscard]] double normal_at(std::uint64_t key, std::uint64_t element);

/// Sets out[i] to static_cast<float>(std * normal_at(key, first + i)), to the bit, in a tenth of the time.
void fill_normal(std::uint64_t key, std::uint64_t first, double std, std::span<float> out);
/// The same without AVX-512.
void fill_normal_portable(std::uint64_t key, std::uint64_t first, double std, std::span<float> out);

/// The `element`-th uniform number in [0, 1) of the stream.
[[nodiscard]] double uniform_at(std::uint64_t key, std::uint64_t element);

}  // namespace trireme

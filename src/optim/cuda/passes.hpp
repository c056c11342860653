// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>

#include <array>
#include <cstdint>

#include "optim/adamw_scalars.hpp"

/// Interface of the .cu files for device.cpp. Pointers are on the device, at the first element of the shard.
namespace trireme::optim::cuda {

/// Parts of a shard in rising order; elements between them are left alone.
struct Ranges {
  static constexpr int most = 32;
  std::array<std::int64_t, most> begin{}, end{};
  std::array<float, most> step_size{}, decay{};  ///< AdamWScalars of each
  // UpdateRange::key and ::whole, where moments are rounded.
  std::array<std::uint64_t, most> key{};
  std::array<std::int64_t, most> first{}, length{}, stride{};
  int count = 0;
};

/// compute: null for none. remainder: null where masters are fp32; else master is. m, v: fp32, or bf16 if rounded.
struct Streams {
  const float* gradient;
  float* master;
  void *m, *v;
  bool rounded_moments;
  c10::BFloat16* compute;
  std::int16_t* remainder;
};

void adamw(const AdamWScalars& scalars, const Ranges& ranges, const Streams& streams);

/// Number of partial sums that `squares` writes for that many elements.
[[nodiscard]] std::int64_t square_chunks(std::int64_t elements);
/// partial[c] = the sum of the squares of chunk c of values, in fp64.
void squares(const float* values, std::int64_t elements, double* partial);

}  // namespace trireme::optim::cuda

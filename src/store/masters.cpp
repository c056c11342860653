// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/masters.hpp"

#include <ATen/Parallel.h>

#include "trireme/base/error.hpp"
#include "trireme/base/split_fp32.hpp"

namespace trireme::store {
namespace {

/// Calls each(i) for all elements.
template <class Each>
void for_each(std::size_t elements, Each each) {
  at::parallel_for(0, static_cast<std::int64_t>(elements), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) each(static_cast<std::size_t>(i));
  });
}

}  // namespace

void split_masters(std::span<const float> masters, std::span<c10::BFloat16> gathered,
                   std::span<std::int16_t> remainder) {
  invariant(gathered.size() == masters.size() && remainder.size() == masters.size(),
            "both halves are as long as the masters");
  for_each(masters.size(), [&](std::size_t i) {
    gathered[i].x = split::gathered_bits(masters[i]);
    remainder[i] = split::remainder_bits(masters[i]);
  });
}

void join_masters(std::span<const c10::BFloat16> gathered, std::span<const std::int16_t> remainder,
                  std::span<float> masters) {
  invariant(gathered.size() == masters.size() && remainder.size() == masters.size(),
            "both halves are as long as the masters");
  for_each(masters.size(), [&](std::size_t i) { masters[i] = split::joined(gathered[i].x, remainder[i]); });
}

std::span<std::int16_t> words(const at::Tensor& remainder) {
  return {reinterpret_cast<std::int16_t*>(remainder.mutable_data_ptr()), static_cast<std::size_t>(remainder.numel())};
}

}  // namespace trireme::store

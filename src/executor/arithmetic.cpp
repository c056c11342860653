// SPDX-License-Identifier: Apache-2.0
#include "executor/arithmetic.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>

#include <cstring>

namespace trireme::executor {
namespace {

/// Calls move(packed, values) for the places of every range.
template <class Move>
void each_range(const at::Tensor& packed, const at::Tensor& values, const std::vector<shard::Range>& ranges,
                Move move) {
  std::int64_t at = 0;
  for (const shard::Range& range : ranges) {
    move(packed.narrow(0, at, range.size()), values.narrow(0, range.begin, range.size()));
    at += range.size();
  }
}

void copy(const at::Tensor& from, const at::Tensor& to) {
  if (to.is_cuda())
    to.copy_(from, /*non_blocking=*/true);
  else
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
}

}  // namespace

void put(const at::Tensor& from, const at::Tensor& to, bool add) {
  if (to.is_cuda()) {
    if (add)
      to.add_(from);
    else
      to.copy_(from, /*non_blocking=*/true);
    return;
  }
  const std::span<float> in = floats(from), out = floats(to);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = add ? out[i] + in[i] : in[i];
}

void round_to_bf16(const at::Tensor& values) {
  if (values.is_cuda()) {
    values.copy_(values.to(at::kBFloat16));
    return;
  }
  for (float& value : floats(values)) value = static_cast<float>(c10::BFloat16(value));
}

at::Tensor widened(const at::Tensor& from) {
  if (from.scalar_type() == at::kFloat) return from;
  if (from.is_cuda()) return from.to(at::kFloat);
  at::Tensor wide = at::empty(from.sizes(), from.options().dtype(at::kFloat));
  const auto* in = from.const_data_ptr<c10::BFloat16>();
  auto* out = wide.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < from.numel(); ++i) out[i] = static_cast<float>(in[i]);
  return wide;
}

at::Tensor plus_residual(const at::Tensor& sum, const at::Tensor& residual, at::ScalarType type) {
  if (sum.is_cuda()) return (residual.defined() ? at::add(sum, residual) : sum).to(type);
  auto* s = sum.mutable_data_ptr<float>();
  if (type == at::kFloat) {
    if (!residual.defined()) return sum;
    const auto* r = residual.const_data_ptr<float>();
    for (std::int64_t i = 0; i < sum.numel(); ++i) s[i] += r[i];
    return sum;
  }
  at::Tensor narrow = at::empty(sum.sizes(), sum.options().dtype(type));
  auto* out = narrow.mutable_data_ptr<c10::BFloat16>();
  const auto* r = residual.defined() ? residual.const_data_ptr<c10::BFloat16>() : nullptr;
  for (std::int64_t i = 0; i < sum.numel(); ++i) out[i] = s[i] + (r != nullptr ? static_cast<float>(r[i]) : 0.0F);
  return narrow;
}

void pack(const at::Tensor& values, const std::vector<shard::Range>& ranges, const at::Tensor& packed) {
  each_range(packed, values, ranges, [](const at::Tensor& into, const at::Tensor& from) { copy(from, into); });
}

void unpack(const at::Tensor& packed, const std::vector<shard::Range>& ranges, const at::Tensor& values) {
  each_range(packed, values, ranges, [](const at::Tensor& from, const at::Tensor& into) { copy(from, into); });
}

}  // namespace trireme::executor

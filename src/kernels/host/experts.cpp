// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/experts.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cuda_experts.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"

namespace trireme::kernels {
namespace {

/// The copy does not wait; who needs `begin` does.
void send_to_host(ExpertRows& rows) {
  rows.arriving =
      at::empty(rows.begin_on_device.sizes(), rows.begin_on_device.options().device(at::kCPU).pinned_memory(true));
  rows.arriving.copy_(rows.begin_on_device, /*non_blocking=*/true);
  const c10::Device device = rows.begin_on_device.device();
  rows.arrived = std::make_shared<c10::Event>(device.type());
  rows.arrived->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

ExpertRows rows_on_device(const at::Tensor& experts, std::int64_t count, std::span<const std::int64_t> tokens) {
  ExpertRows rows = cuda::expert_rows(experts, count);
  if (tokens.empty()) {
    send_to_host(rows);
    return rows;
  }
  rows.begin.assign(1, 0);
  for (const std::int64_t of_expert : tokens) rows.begin.push_back(rows.begin.back() + of_expert);
  invariant(static_cast<std::int64_t>(rows.begin.size()) == count + 1 && rows.begin.back() == experts.numel(),
            "the rows of experts are not those of the choice");
  return rows;
}

}  // namespace

void fetch_begin(ExpertRows& rows) {
  if (!rows.begin.empty()) return;
  rows.arrived->synchronize();
  const auto* const from = rows.arriving.const_data_ptr<std::int32_t>();
  rows.begin.assign(from, from + rows.arriving.numel());
}

ExpertRows expert_rows(const at::Tensor& experts, std::int64_t count, std::span<const std::int64_t> tokens) {
  if (experts.is_cuda()) return rows_on_device(experts, count, tokens);
  const std::int64_t choices = experts.numel();
  const auto* const chosen = experts.const_data_ptr<std::int32_t>();
  ExpertRows rows{.begin = std::vector<std::int64_t>(static_cast<std::size_t>(count) + 1, 0),
                  .choice = at::empty({choices}, experts.options()),
                  .place = at::empty(experts.sizes(), experts.options())};
  for (std::int64_t i = 0; i < choices; ++i) ++rows.begin[static_cast<std::size_t>(chosen[i]) + 1];
  std::partial_sum(rows.begin.begin(), rows.begin.end(), rows.begin.begin());
  std::vector<std::int64_t> next(rows.begin.begin(), rows.begin.end() - 1);
  auto* const choice = rows.choice.mutable_data_ptr<std::int32_t>();
  auto* const place = rows.place.mutable_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < choices; ++i) {
    const std::int64_t row = next[static_cast<std::size_t>(chosen[i])]++;
    choice[row] = static_cast<std::int32_t>(i);
    place[i] = static_cast<std::int32_t>(row);
  }
  return rows;
}

at::Tensor gather_rows(const at::Tensor& x, const ExpertRows& by_expert) {
  const std::int64_t k = by_expert.place.size(1);
  at::Tensor out = at::empty({by_expert.choice.size(0), x.size(1)}, x.options());
  if (x.is_cuda()) {
    cuda::gather_rows(x, by_expert, out);
    return out;
  }
  const auto* const choice = by_expert.choice.const_data_ptr<std::int32_t>();
  with_type(x, [&]<class T>(T) {
    const auto from = rows<T>(x), to = rows<T>(out);
    parallel(to.count, [=](std::int64_t row) { std::copy_n(from[choice[row] / k], from.width, to[row]); });
  });
  return out;
}

void sum_rows(const at::Tensor& values, const ExpertRows& by_expert, const at::Tensor& residual,
              const at::Tensor& out) {
  const std::int64_t k = by_expert.place.size(1);
  expect_shape(values, {by_expert.choice.size(0), out.size(1)}, out.scalar_type(), "sum_rows: values do not fit");
  if (residual.defined()) expect_shape(residual, out.sizes(), out.scalar_type(), "sum_rows: the residual does not fit");
  if (out.is_cuda()) return cuda::sum_rows(values, by_expert, residual, out);
  const auto* const place = by_expert.place.const_data_ptr<std::int32_t>();
  with_type(out, [&]<class T>(T) {
    const auto from = rows<T>(values), to = rows<T>(out), beside = residual.defined() ? rows<T>(residual) : to;
    const bool adds = residual.defined();
    parallel_chunks(to.count, 16, [=](std::int64_t begin, std::int64_t end) {
      std::vector<float> sum(static_cast<std::size_t>(to.width));
      for (std::int64_t token = begin; token < end; ++token) {
        std::fill(sum.begin(), sum.end(), 0.0F);
        for (std::int64_t j = 0; j < k; ++j) {
          const T* const row = from[place[token * k + j]];
          for (std::int64_t c = 0; c < to.width; ++c) sum[static_cast<std::size_t>(c)] += get(row[c]);
        }
        for (std::int64_t c = 0; c < to.width; ++c)
          put(to[token][c], sum[static_cast<std::size_t>(c)] + (adds ? get(beside[token][c]) : 0.0F));
      }
    });
  });
}

void scale_rows(const at::Tensor& values, const at::Tensor& weights, const ExpertRows& by_expert,
                const at::Tensor& out) {
  expect_shape(out, values.sizes(), values.scalar_type(), "scale_rows: out does not fit the values");
  if (values.is_cuda()) return cuda::scale_rows(values, weights, by_expert, out);
  const auto* const choice = by_expert.choice.const_data_ptr<std::int32_t>();
  const auto* const weight = weights.const_data_ptr<float>();
  with_type(values, [&]<class T>(T) {
    const auto from = rows<T>(values), to = rows<T>(out);
    parallel(to.count, [=](std::int64_t row) {
      const float factor = weight[choice[row]];
      for (std::int64_t c = 0; c < to.width; ++c) put(to[row][c], factor * get(from[row][c]));
    });
  });
}

at::Tensor weight_gradients(const at::Tensor& d_scaled, const at::Tensor& values, const ExpertRows& by_expert) {
  expect_shape(d_scaled, values.sizes(), values.scalar_type(), "weight_gradients: d_scaled does not fit the values");
  at::Tensor out = at::empty(by_expert.place.sizes(), values.options().dtype(at::kFloat));
  if (values.is_cuda()) {
    cuda::weight_gradients(d_scaled, values, by_expert, out);
    return out;
  }
  const auto* const choice = by_expert.choice.const_data_ptr<std::int32_t>();
  auto* const to = out.mutable_data_ptr<float>();
  with_type(values, [&]<class T>(T) {
    const auto a = rows<T>(values), b = rows<T>(d_scaled);
    parallel(a.count, [=](std::int64_t row) {
      double sum = 0;
      for (std::int64_t c = 0; c < a.width; ++c) sum += static_cast<double>(get(a[row][c])) * get(b[row][c]);
      to[choice[row]] = static_cast<float>(sum);
    });
  });
  return out;
}

void move_segments(const at::Tensor& from, std::span<const std::int64_t> from_begin,
                   std::span<const std::int64_t> to_begin, const at::Tensor& to) {
  invariant(from_begin.size() == to_begin.size() && from.size(1) == to.size(1), "move_segments: parts do not fit");
  invariant(from.is_cuda(), "move_segments: the host copies segments itself");
  cuda::move_segments(from, from_begin, to_begin, to);
}

bool multiplies_in_groups(const at::Tensor& x, const at::Tensor& matrices) {
  if (!x.is_cuda() || !matrices.defined() || x.scalar_type() != at::kBFloat16) return false;
  const auto whole = [](const at::Tensor& t) {
    return t.size(-1) % 8 == 0 && t.size(-2) % 8 == 0 && reinterpret_cast<std::uintptr_t>(t.const_data_ptr()) % 16 == 0;
  };
  return x.size(0) > 0 && x.is_contiguous() && x.size(1) % 8 == 0 && whole(matrices) && cuda::multiplies_in_groups();
}

at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& matrices, std::span<const std::int64_t> begin) {
  invariant(multiplies_in_groups(x, matrices), "a product that has no grouped kernel");
  return cuda::grouped_product(x, matrices, begin);
}

}  // namespace trireme::kernels

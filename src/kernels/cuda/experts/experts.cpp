// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels/cuda/experts/launchers.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/tensors.hpp"
#include "kernels/cuda_experts.hpp"

namespace trireme::kernels::cuda {
namespace {

static_assert(most_experts == most_experts_on_gpu);

Router router_of(const model::Experts& experts) {
  invariant(experts.count <= most_experts, "a router on a GPU has more experts than its kernels have room for");
  return {.count = static_cast<int>(experts.count),
          .per_token = static_cast<int>(experts.per_token),
          .groups = static_cast<int>(experts.groups),
          .groups_kept = static_cast<int>(experts.groups_kept),
          .sigmoid = experts.scores == model::RouterScores::sigmoid,
          .normalized = experts.normalized,
          .scale = experts.scale};
}

at::Tensor ints(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, like.options().dtype(at::kInt));
}

/// On the device of `like`. The copy does not block: the host's numbers are read before it returns.
at::Tensor uploaded(std::span<const std::int64_t> values, const at::Tensor& like) {
  const at::Tensor here = at::empty({static_cast<std::int64_t>(values.size())}, at::kInt);
  std::ranges::transform(values, here.mutable_data_ptr<std::int32_t>(),
                         [](std::int64_t value) { return static_cast<std::int32_t>(value); });
  return here.to(like.device(), /*non_blocking=*/true);
}

}  // namespace

at::Tensor choose_experts(const at::Tensor& logits, const model::Experts& router, const at::Tensor& bias) {
  at::Tensor experts = ints(logits, {logits.size(0), router.per_token});
  choose_experts(data<const float>(logits), logits.size(0), bias.defined() ? data<const float>(bias) : nullptr,
                 router_of(router), data<std::int32_t>(experts));
  return experts;
}

at::Tensor expert_weights(const at::Tensor& logits, const at::Tensor& experts, const model::Experts& router) {
  at::Tensor weights = at::empty(experts.sizes(), logits.options());
  expert_weights(data<const float>(logits), data<const std::int32_t>(experts), logits.size(0), router_of(router),
                 data<float>(weights));
  return weights;
}

at::Tensor sequence_loads(const at::Tensor& experts, const Sequences& of, std::int64_t count,
                          std::int64_t all_experts) {
  at::Tensor loads = at::empty({count, all_experts}, experts.options().dtype(at::kFloat));
  sequence_loads(data<const std::int32_t>(experts), {experts.size(0), of.length, of.first}, count,
                 router_of({.count = all_experts, .per_token = experts.size(1)}), data<float>(loads));
  return loads;
}

at::Tensor router_backward(const at::Tensor& d_weights, const at::Tensor& logits, const at::Tensor& experts,
                           const Sequences& sequences, const model::Experts& router, RouterScales scales,
                           const at::Tensor& d_logits) {
  const std::int64_t tokens = logits.size(0);
  at::Tensor loads, losses, sums;
  if (scales.balance != 0)
    loads = sequences.loads.defined()
                ? sequences.loads
                : cuda::sequence_loads(experts, sequences, ceil_div(sequences.first + tokens, sequences.length),
                                       logits.size(1));
  if (scales.balance != 0 || scales.z != 0) {
    losses = at::empty({2, tokens}, logits.options().dtype(at::kDouble));
    sums = at::zeros({2}, losses.options());
  }
  router_backward({.d_weights = data<const float>(d_weights),
                   .logits = data<const float>(logits),
                   .experts = data<const std::int32_t>(experts),
                   .loads = loads.defined() ? data<const float>(loads) : nullptr,
                   .of = {tokens, sequences.length, sequences.first},
                   .router = router_of(router),
                   .balance = scales.balance,
                   .z = scales.z,
                   .d_logits = data<float>(d_logits),
                   .losses = losses.defined() ? data<double>(losses) : nullptr});
  if (sums.defined())
    for (const std::int64_t i : {0, 1})
      add_sum(data<const double>(losses) + i * tokens, tokens, data<double>(sums) + i);
  return sums;
}

ExpertRows expert_rows(const at::Tensor& experts, std::int64_t count) {
  invariant(count <= most_experts, "rows on a GPU have more experts than its kernels have room for");
  const std::int64_t choices = experts.numel();
  ExpertRows rows{.choice = ints(experts, {choices}), .place = ints(experts, experts.sizes())};
  rows.begin_on_device = ints(experts, {count + 1});
  const at::Tensor before = ints(experts, {ceil_div(choices, sorted_chunk), count});
  sort_rows(data<const std::int32_t>(experts), choices, static_cast<int>(count), data<std::int32_t>(before),
            data<std::int32_t>(rows.begin_on_device), data<std::int32_t>(rows.choice), data<std::int32_t>(rows.place));
  return rows;
}

void gather_rows(const at::Tensor& x, const ExpertRows& rows, const at::Tensor& out) {
  with_type(x, [&]<class T>(T) {
    gather_rows(matrix<const T>(x), data<const std::int32_t>(rows.choice), rows.place.size(1), matrix<T>(out));
  });
}

void sum_rows(const at::Tensor& values, const ExpertRows& rows, const at::Tensor& residual, const at::Tensor& out) {
  with_type(out, [&]<class T>(T) {
    sum_rows(matrix<const T>(values), data<const std::int32_t>(rows.place), rows.place.size(1),
             matrix<const T>(residual), matrix<T>(out));
  });
}

void scale_rows(const at::Tensor& values, const at::Tensor& weights, const ExpertRows& rows, const at::Tensor& out) {
  with_type(values, [&]<class T>(T) {
    scale_rows(matrix<const T>(values), data<const float>(weights), data<const std::int32_t>(rows.choice),
               matrix<T>(out));
  });
}

void weight_gradients(const at::Tensor& d_scaled, const at::Tensor& values, const ExpertRows& rows,
                      const at::Tensor& out) {
  with_type(values, [&]<class T>(T) {
    weight_gradients(matrix<const T>(d_scaled), matrix<const T>(values), data<const std::int32_t>(rows.choice),
                     data<float>(out));
  });
}

void move_segments(const at::Tensor& from, std::span<const std::int64_t> from_begin,
                   std::span<const std::int64_t> to_begin, const at::Tensor& to) {
  const at::Tensor sources = uploaded(from_begin, from), targets = uploaded(to_begin, from);
  with_type(from, [&]<class T>(T) {
    move_segments(matrix<const T>(from), data<const std::int32_t>(sources), data<const std::int32_t>(targets),
                  static_cast<int>(from_begin.size()), matrix<T>(to));
  });
}

at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& matrices, std::span<const std::int64_t> begin) {
  return at::_grouped_mm(x, matrices, uploaded(begin.subspan(1), x));
}

}  // namespace trireme::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <vector>

#include "support/gpu.hpp"
#include "support/tensors.hpp"
#include "trireme/optim/device.hpp"
#include "trireme/optim/norm.hpp"
#include "trireme/store/masters.hpp"

namespace trireme::optim {
namespace {

using test::same_bits;
using test::to_kernels;

std::span<float> floats(const at::Tensor& t) {
  return {t.mutable_data_ptr<float>(), static_cast<std::size_t>(t.numel())};
}

std::span<c10::BFloat16> bf16s(const at::Tensor& t) {
  return {t.mutable_data_ptr<c10::BFloat16>(), static_cast<std::size_t>(t.numel())};
}

class OptimOnDevice : public test::GpuTest {};

/// Many ranges, odd bounds, gaps, neighbours under other rules.
std::vector<UpdateRange> many_ranges(std::int64_t elements) {
  std::vector<UpdateRange> ranges;
  std::int64_t begin = 3;
  for (std::int64_t i = 0; begin + 60 < elements; ++i) {
    const std::int64_t end = begin + 1 + (i * 37) % 50;
    ranges.push_back({{begin, end}, i % 3 != 0 ? 0 : 1});
    begin = end + (i % 4 == 0 ? 0 : i % 7);
  }
  return ranges;
}

void compare_updates(std::int64_t elements, const std::vector<UpdateRange>& ranges, bool with_compute) {
  const at::Tensor gradient = 3 * at::randn({elements});
  const at::Tensor master = at::randn({elements}), m = at::zeros({elements}), v = at::zeros({elements});
  const at::Tensor compute = at::full({elements}, 7, at::kBFloat16);
  const DeviceState there{to_kernels(master), to_kernels(m), to_kernels(v)};
  const at::Tensor compute_there = to_kernels(compute), gradient_there = to_kernels(gradient);
  for (std::int64_t count = 1; count <= 3; ++count) {
    const AdamWStep step{
        .lr = 1e-2, .weight_decay = {0.1, 0}, .lr_factor = {1, 0.3}, .count = count, .gradient_factor = 0.37};
    std::span<c10::BFloat16> out;
    if (with_compute) out = {compute.mutable_data_ptr<c10::BFloat16>(), static_cast<std::size_t>(elements)};
    adamw(step, ranges, std::span<const float>(floats(gradient)), {floats(master), floats(m), floats(v)}, out);
    adamw(step, ranges, gradient_there, there, with_compute ? compute_there : at::Tensor());
  }
  EXPECT_TRUE(same_bits(there.master.cpu(), master)) << elements;
  EXPECT_TRUE(same_bits(there.m.cpu(), m)) << elements;
  EXPECT_TRUE(same_bits(there.v.cpu(), v)) << elements;
  EXPECT_TRUE(same_bits(compute_there.cpu(), compute)) << elements;
}

TEST_F(OptimOnDevice, AdamWGivesTheBitsOfTheHost) {
  for (const bool with_compute : {false, true}) {
    for (const std::int64_t elements : {1, 64, 1000, 4099})
      compare_updates(elements, {{{0, elements}, 0}}, with_compute);
    compare_updates(3000, many_ranges(3000), with_compute);  // more than one launch takes
    compare_updates(64, {}, with_compute);
  }
}

/// The same of masters in two halves, against fp32 masters on the host.
void compare_split_updates(std::int64_t elements, const std::vector<UpdateRange>& ranges) {
  const at::Tensor gradient = 3 * at::randn({elements});
  const at::Tensor master = at::randn({elements}), m = at::zeros({elements}), v = at::zeros({elements});
  const at::Tensor compute = at::full({elements}, 7, at::kBFloat16), rest = compute.clone();
  store::split_masters(floats(master), bf16s(compute), store::words(rest));
  const DeviceState there{.master = {}, .m = to_kernels(m), .v = to_kernels(v), .remainder = to_kernels(rest)};
  const at::Tensor compute_there = to_kernels(compute), gradient_there = to_kernels(gradient);
  for (std::int64_t count = 1; count <= 3; ++count) {
    const AdamWStep step{
        .lr = 1e-2, .weight_decay = {0.1, 0}, .lr_factor = {1, 0.3}, .count = count, .gradient_factor = 0.37};
    adamw(step, ranges, std::span<const float>(floats(gradient)), AdamWState{floats(master), floats(m), floats(v)},
          bf16s(compute));
    adamw(step, ranges, gradient_there, there, compute_there);
  }
  const at::Tensor back = at::zeros({elements});
  store::join_masters(bf16s(compute_there.cpu()), store::words(there.remainder.cpu()), floats(back));
  EXPECT_TRUE(same_bits(back, master)) << elements;
  EXPECT_TRUE(same_bits(compute_there.cpu(), compute)) << elements;
  EXPECT_TRUE(same_bits(there.m.cpu(), m)) << elements;
  EXPECT_TRUE(same_bits(there.v.cpu(), v)) << elements;
}

TEST_F(OptimOnDevice, AdamWGivesTheSameBitsToSplitMasters) {
  for (const std::int64_t elements : {1, 64, 1000, 4099}) compare_split_updates(elements, {{{0, elements}, 0}});
  compare_split_updates(3000, many_ranges(3000));
}

/// `ranges` as parts of parameters: rows of columns, whole runs, from elements on that are no multiples of 4.
std::vector<UpdateRange> with_places(std::vector<UpdateRange> ranges) {
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    const std::int64_t size = ranges[r].elements.size(), rows = size % 3 == 0 ? 3 : size % 2 == 0 ? 2 : 1;
    ranges[r].key = 1000 + r;
    ranges[r].whole = {.first = static_cast<std::int64_t>(r) * 4 + static_cast<std::int64_t>(r % 3),
                       .length = size / rows,
                       .stride = rows > 1 ? 2 * size + static_cast<std::int64_t>(r % 2) : 0,
                       .count = rows};
  }
  return ranges;
}

/// Moments in bf16; masters in fp32 or in two halves.
void compare_rounded_updates(std::int64_t elements, const std::vector<UpdateRange>& ranges, bool split) {
  const at::Tensor gradient = 3 * at::randn({elements}), master = at::randn({elements});
  const at::Tensor m = at::zeros({elements}, at::kBFloat16), v = at::zeros({elements}, at::kBFloat16);
  const at::Tensor compute = at::full({elements}, 7, at::kBFloat16), rest = compute.clone();
  if (split) store::split_masters(floats(master), bf16s(compute), store::words(rest));
  const DeviceState there{.master = split ? at::Tensor() : to_kernels(master),
                          .m = to_kernels(m),
                          .v = to_kernels(v),
                          .remainder = split ? to_kernels(rest) : at::Tensor()};
  const at::Tensor compute_there = to_kernels(compute), gradient_there = to_kernels(gradient);
  for (std::int64_t count = 1; count <= 3; ++count) {
    const AdamWStep step{
        .lr = 1e-2, .weight_decay = {0.1, 0}, .lr_factor = {1, 0.3}, .count = count, .gradient_factor = 0.37};
    const std::span<const float> gradients = floats(gradient);
    if (split)
      adamw(step, ranges, gradients, RoundedSplitAdamWState{bf16s(compute), store::words(rest), bf16s(m), bf16s(v)});
    else
      adamw(step, ranges, gradients, RoundedAdamWState{floats(master), bf16s(m), bf16s(v)}, bf16s(compute));
    adamw(step, ranges, gradient_there, there, compute_there);
  }
  EXPECT_TRUE(same_bits(compute_there.cpu(), compute)) << elements;
  EXPECT_TRUE(split ? same_bits(there.remainder.cpu(), rest) : same_bits(there.master.cpu(), master)) << elements;
  EXPECT_TRUE(same_bits(there.m.cpu(), m)) << elements;
  EXPECT_TRUE(same_bits(there.v.cpu(), v)) << elements;
}

TEST_F(OptimOnDevice, AdamWGivesTheBitsOfTheHostToRoundedMoments) {
  for (const bool split : {false, true}) {
    for (const std::int64_t elements : {1, 64, 1000, 4098})
      compare_rounded_updates(elements, with_places({{{0, elements}, 0}}), split);
    compare_rounded_updates(3000, with_places(many_ranges(3000)), split);
  }
}

TEST_F(OptimOnDevice, SumOfSquaresFollowsTheHost) {
  const at::Tensor values = at::randn({70001}), there = to_kernels(values);
  for (const auto& range : {shard::Range{0, 0}, {5, 6}, {0, 70001}, {4, 33000}, {32767, 65539}, {1, 70001}}) {
    const at::Tensor into = to_kernels(at::full({1}, 2, at::kDouble));
    sum_of_squares(there, range, into);
    const double expected = 2 + sum_of_squares(floats(values).subspan(static_cast<std::size_t>(range.begin),
                                                                      static_cast<std::size_t>(range.size())));
    EXPECT_NEAR(into.cpu().item<double>(), expected, 1e-12 * expected);
  }
}

TEST_F(OptimOnDevice, SumOfSquaresIsNotFiniteWhereAValueIsNot) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const at::Tensor values = at::randn({40000});
    values[39999] = bad;
    const at::Tensor into = to_kernels(at::zeros({1}, at::kDouble));
    sum_of_squares(to_kernels(values), {0, 40000}, into);
    EXPECT_FALSE(std::isfinite(into.cpu().item<double>()));
  }
}

}  // namespace
}  // namespace trireme::optim

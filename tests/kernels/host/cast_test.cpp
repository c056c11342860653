// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/cast.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "support/tensors.hpp"

namespace trireme::kernels {
namespace {

TEST(Cast, RoundsToNearestEvenAsLibtorchDoes) {
  std::vector<float> values = {0.0F,          -0.0F,  1.0F,    INFINITY,    -INFINITY,
                               3.3895314e38F, 1e-45F, -1e-40F, 1.00390625F, 1.01171875F};
  for (std::uint32_t bits = 0x3f800000U; bits < 0x3f830000U; bits += 0x111U)
    values.push_back(std::bit_cast<float>(bits));
  const at::Tensor from = at::empty({static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), from.mutable_data_ptr<float>());
  const at::Tensor to = at::empty(from.sizes(), at::kBFloat16);
  cast(from, to);
  EXPECT_TRUE(test::same_bits(to, from.to(at::kBFloat16)));
}

TEST(Cast, KeepsNaN) {
  const at::Tensor to = at::empty({40}, at::kBFloat16);
  cast(at::full({40}, NAN), to);
  EXPECT_TRUE(to.isnan().all().item<bool>());
}

TEST(Cast, ToFp32IsExact) {
  const at::Tensor from = at::randn({100003}).to(at::kBFloat16);
  const at::Tensor to = at::empty({100003});
  cast(from, to);
  EXPECT_TRUE(test::same_bits(to, from.to(at::kFloat)));
}

TEST(AddInto, AddsEitherTypeIntoFp32) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor from = at::randn({50001}).to(type);
    const at::Tensor to = at::randn({50001});
    const at::Tensor expected = to + from;
    add_into(from, to);
    EXPECT_TRUE(test::same_bits(to, expected));
  }
}

}  // namespace
}  // namespace trireme::kernels

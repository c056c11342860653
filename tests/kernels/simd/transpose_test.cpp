// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/transpose.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "support/tensors.hpp"

namespace trireme::kernels {
namespace {

/// Whole and broken squares of rows that are apart; what lies between the results' rows stays as it is.
template <class T>
void compare(at::ScalarType type) {
  constexpr std::int64_t apart = 3;
  for (const std::int64_t rows : {1, 7, 8, 16, 23, 32, 64, 77}) {
    for (const std::int64_t columns : {1, 5, 8, 16, 31, 48, 90}) {
      const at::Tensor from = at::randn({rows, columns + apart}).to(type);
      const at::Tensor to = at::full({columns, rows + apart}, 5.0F);
      const at::Tensor expected = to.clone();
      expected.slice(1, 0, rows).copy_(from.slice(1, 0, columns).t());
      for (const auto& function : {&transpose<T>, &transpose_portable<T>}) {
        to.fill_(5.0F);
        function(static_cast<const T*>(from.const_data_ptr()), columns + apart, rows, columns,
                 to.mutable_data_ptr<float>(), rows + apart);
        EXPECT_TRUE(test::same_bits(to, expected)) << rows << " " << columns;
      }
    }
  }
}

TEST(Transpose, MovesEveryElement) {
  compare<float>(at::kFloat);
  compare<c10::BFloat16>(at::kBFloat16);
}

}  // namespace
}  // namespace trireme::kernels

// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/block_product.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "support/tensors.hpp"

namespace trireme::kernels {
namespace {

/// Every mixture of whole and broken tiles, against libtorch in fp64; C's neighbours stay as they are. T: what the
/// product reads, `type`: the same to libtorch, of which `width` are one T.
template <class T>
void compare(BlockProduct<T>* product, bool transposed, at::ScalarType type, std::int64_t width) {
  Lines ahead;  // more than are kept, and no memory at all: prefetches do not fault
  ahead.add(nullptr, 64, 300);
  const at::Tensor from = at::arange(300 * 50, at::kFloat).view({300, 50});
  for (const std::int64_t m : {1, 5, 6, 13}) {
    for (const std::int64_t n : {1, 7, 8, 16, 23, 48, 64, 80, 131}) {
      for (const std::int64_t k : {1, 9, 64, 300}) {
        for (const bool add : {false, true}) {
          const at::Tensor a = at::randn({(transposed ? k : m), (transposed ? m : k) + 3, width}).to(type);
          const at::Tensor b = at::randn({k, n + 5, width}).to(type);
          const at::Tensor c = at::randn({m, n + 2}), other = at::randn({m, n + 4});
          const at::Tensor expected = c.to(at::kDouble);
          const at::Tensor part = expected.slice(1, 0, n);
          const at::Tensor left = (transposed ? a.slice(1, 0, m).transpose(0, 1) : a.slice(1, 0, k)).to(at::kDouble);
          const at::Tensor right = b.slice(1, 0, n).transpose(1, 2).to(at::kDouble);
          const at::Tensor sum = left.reshape({m, k * width}).mm(right.reshape({k * width, n}));
          // D: nothing, C, another matrix.
          Panel<const float> d{nullptr, n + 2};
          if (add)
            d = m == 6 ? Panel<const float>{other.const_data_ptr<float>(), n + 4}
                       : Panel<const float>{c.const_data_ptr<float>(), n + 2};
          if (add && m == 6) part.copy_(other.slice(1, 0, n));
          add ? part.add_(sum) : part.copy_(sum);
          const at::Tensor to = at::zeros({k, 40});
          Interleaved interleaved{
              .prefetches = ahead,
              .copies = {{from.const_data_ptr<float>(), 50}, {to.mutable_data_ptr<float>(), 40}, k, 2}};
          product({m, n, k}, {static_cast<const T*>(a.const_data_ptr()), a.stride(0) / width},
                  {static_cast<const T*>(b.const_data_ptr()), n + 5}, {c.mutable_data_ptr<float>(), n + 2}, d,
                  m == 5 ? nullptr : &interleaved);
          EXPECT_LT(test::relative_error(c, expected), 1e-6) << m << " " << n << " " << k << " " << add;
          if (m == 5) continue;
          EXPECT_TRUE(at::equal(to.slice(1, 0, 32), from.slice(0, 0, k).slice(1, 0, 32))) << m << " " << n << " " << k;
          EXPECT_FALSE(to.slice(1, 32).any().item<bool>()) << m << " " << n << " " << k;
        }
      }
    }
  }
}

TEST(BlockProduct, AgreesWithFp64OnAnyCpu) {
  compare<float>(block_product_portable, false, at::kFloat, 1);
  compare<float>(block_product_transposed_portable, true, at::kFloat, 1);
}

TEST(BlockProduct, AgreesWithFp64OnThisCpu) {
  compare<float>(block_product, false, at::kFloat, 1);
  compare<float>(block_product_transposed, true, at::kFloat, 1);
}

TEST(BlockProduct, PairsAgreeWithFp64) {
  if (!has_pair_products) GTEST_SKIP() << "this CPU has no AVX512-BF16";
  compare<Pair>(block_product, false, at::kBFloat16, 2);
  compare<Pair>(block_product_transposed, true, at::kBFloat16, 2);
}

}  // namespace
}  // namespace trireme::kernels

// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/documents.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace trireme::nn {
namespace {

TEST(DocumentBegins, FollowEveryEndAndEveryRow) {
  const at::Tensor inputs = at::tensor({7, 9, 7, 7, 5, /**/ 9, 9, 3, 7, 9, /**/ 1, 2, 3, 4, 5}, at::kInt);
  const at::Tensor expected = at::tensor({0, 0, 2, 2, 2, /**/ 0, 1, 2, 2, 2, /**/ 0, 0, 0, 0, 0}, at::kInt);
  EXPECT_TRUE(at::equal(document_begins(inputs, 5, /*document_end=*/9), expected));
}

}  // namespace
}  // namespace trireme::nn

// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/documents.hpp"

#include <ATen/ops/empty_like.h>

namespace trireme::nn {

at::Tensor document_begins(const at::Tensor& inputs, std::int64_t seq_len, std::int64_t document_end) {
  at::Tensor begins = at::empty_like(inputs);
  const auto* const tokens = inputs.const_data_ptr<std::int32_t>();
  auto* const out = begins.mutable_data_ptr<std::int32_t>();
  for (std::int64_t row = 0; row < inputs.numel(); row += seq_len) {
    std::int32_t begin = 0;
    for (std::int64_t t = 0; t < seq_len; ++t) {
      out[row + t] = begin;
      if (tokens[row + t] == document_end) begin = static_cast<std::int32_t>(t) + 1;
    }
  }
  return begins;
}

}  // namespace trireme::nn

// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/bias.hpp"

#include <vector>

#include "kernels/cuda.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"
#include "trireme/base/ceil_div.hpp"

namespace trireme::kernels {

void add_bias(const at::Tensor& y, const at::Tensor& bias) {
  expect_shape(bias, {y.size(1)}, y.scalar_type(), "add_bias: the bias does not fit y");
  if (y.is_cuda()) return cuda::add_bias(y, bias);
  with_type(y, [&]<class T>(T) {
    const auto to = rows<T>(y);
    const auto* b = static_cast<const T*>(bias.const_data_ptr());
    parallel(to.count, [=](std::int64_t n) {
      T* row = to[n];
#pragma GCC ivdep
      for (std::int64_t d = 0; d < to.width; ++d) put(row[d], get(row[d]) + get(b[d]));
    });
  });
}

void bias_gradient(const at::Tensor& d_y, const Grad& d_bias) {
  constexpr std::int64_t chunk_rows = 64;
  expect_shape(d_bias.tensor, {d_y.size(1)}, at::kFloat, "bias_gradient: the gradient does not fit d_y");
  if (d_y.is_cuda()) return cuda::bias_gradient(d_y, d_bias);
  with_type(d_y, [&]<class T>(T) {
    const auto from = rows<T>(d_y);
    const std::int64_t width = from.width;
    const std::int64_t chunks = ceil_div(from.count, chunk_rows);
    std::vector<float> partial(static_cast<std::size_t>(chunks * width), 0.0F);
    float* sums = partial.data();
    parallel_chunks(from.count, chunk_rows, [=](std::int64_t begin, std::int64_t end) {
      float* sum = sums + begin / chunk_rows * width;
      for (std::int64_t n = begin; n < end; ++n) {
        const T* row = from[n];
#pragma GCC ivdep
        for (std::int64_t d = 0; d < width; ++d) sum[d] += get(row[d]);
      }
    });
    auto* grad = d_bias.tensor.mutable_data_ptr<float>();
    const bool accumulate = d_bias.accumulate;
    parallel_chunks(width, 256, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t d = begin; d < end; ++d) {
        float sum = accumulate ? grad[d] : 0.0F;
        for (std::int64_t c = 0; c < chunks; ++c) sum += sums[c * width + d];
        grad[d] = sum;
      }
    });
  });
}

}  // namespace trireme::kernels

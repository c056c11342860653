// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/vocabulary.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda.hpp"
#include "kernels/host/losses.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/row_kernels.hpp"
#include "kernels/simd/rows.hpp"
#include "trireme/kernels/embedding.hpp"

namespace trireme::kernels {
namespace {

Softmax softmax_of(const float* row, std::int64_t n) { return row_kernels.softmax_fp32(row, n); }
Softmax softmax_of(const c10::BFloat16* row, std::int64_t n) { return row_kernels.softmax_bf16(row, n); }

void softmax_gradient(float* row, float top, float factor, std::int64_t n) {
  (void)row_kernels.exponentials(row, n, 1.0F, top);
  for (std::int64_t i = 0; i < n; ++i) row[i] *= factor;
}
void softmax_gradient(c10::BFloat16* row, float top, float factor, std::int64_t n) {
  row_kernels.softmax_gradient_bf16(row, top, factor, n);
}

}  // namespace

void embedding_gather_part(const at::Tensor& ids, std::int64_t first, const at::Tensor& table, const at::Tensor& out) {
  expect_shape(out, {ids.size(0), table.size(1)}, table.scalar_type(), "embedding_gather_part: out does not fit");
  if (table.is_cuda()) return cuda::embedding_gather_part(ids, first, table, out);
  const auto* id = ids.const_data_ptr<std::int32_t>();
  with_type(table, [&]<class T>(T) {
    const auto from = rows<T>(table);
    const auto to = rows<T>(out);
    parallel(to.count, [=](std::int64_t n) {
      const std::int64_t row = id[n] - first;
      if (row >= 0 && row < from.count)
        std::copy_n(from[row], from.width, to[n]);
      else
        std::fill_n(to[n], to.width, T(0));
    });
  });
}

void embedding_scatter_add_part(const at::Tensor& ids, std::int64_t first, const at::Tensor& d_out,
                                const Grad& d_table) {
  if (d_out.is_cuda()) return cuda::embedding_scatter_add_part(ids, first, d_out, d_table);
  const auto* id = ids.const_data_ptr<std::int32_t>();
  std::vector<std::int64_t> here;
  for (std::int64_t n = 0; n < ids.size(0); ++n)
    if (id[n] >= first && id[n] < first + d_table.tensor.size(0)) here.push_back(n);
  const auto count = static_cast<std::int64_t>(here.size());
  const at::Tensor local_ids = at::empty({count}, at::kInt);
  const at::Tensor local_d = at::empty({count, d_out.size(1)}, d_out.options());
  auto* local = local_ids.mutable_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < count; ++i)
    local[i] = id[here[static_cast<std::size_t>(i)]] - static_cast<std::int32_t>(first);
  with_type(d_out, [&]<class T>(T) {
    const auto from = rows<T>(d_out);
    const auto to = rows<T>(local_d);
    const std::int64_t* source = here.data();
    parallel(count, [=](std::int64_t i) { std::copy_n(from[source[i]], from.width, to[i]); });
  });
  embedding_scatter_add(local_ids, local_d, d_table);
}

void vocabulary_statistics(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first,
                           const at::Tensor& statistics) {
  expect_shape(statistics, {logits.size(0), 3}, at::kFloat, "vocabulary_statistics: the statistics do not fit");
  expect_shape(targets, {logits.size(0)}, at::kInt, "vocabulary_statistics: the targets do not fit the logits");
  if (logits.is_cuda()) return cuda::vocabulary_statistics(logits, targets, first, statistics);
  const auto* target = targets.const_data_ptr<std::int32_t>();
  with_type(logits, [&]<class T>(T) {
    const auto matrix = rows<T>(logits);
    const auto to = rows<float>(statistics);
    parallel(matrix.count, [=](std::int64_t n) {
      const Softmax s = softmax_of(matrix[n], matrix.width);
      const std::int64_t column = target[n] - first;
      to[n][0] = s.top;
      to[n][1] = s.sum;
      to[n][2] = target[n] >= 0 && column >= 0 && column < matrix.width ? get(matrix[n][column]) : 0.0F;
    });
  });
}

void combine_statistics(const at::Tensor& gathered, const at::Tensor& targets, const at::Tensor& softmax, double z_loss,
                        const at::Tensor& loss) {
  expect_sums(loss);
  if (gathered.is_cuda()) return cuda::combine_statistics(gathered, targets, softmax, z_loss, loss);
  add(combine_statistics(gathered, targets, softmax, z_loss), loss);
}

LossSums combine_statistics(const at::Tensor& gathered, const at::Tensor& targets, const at::Tensor& softmax,
                            double z_loss) {
  if (gathered.is_cuda()) {
    const at::Tensor loss = no_loss(gathered);
    cuda::combine_statistics(gathered, targets, softmax, z_loss, loss);
    return read(loss);
  }
  const std::int64_t ranks = gathered.size(0), count = gathered.size(1);
  const auto* all = gathered.const_data_ptr<float>();
  const auto* target = targets.const_data_ptr<std::int32_t>();
  auto* out = softmax.mutable_data_ptr<float>();
  LossSums sums;
  for (std::int64_t n = 0; n < count; ++n) {
    const auto of = [&](std::int64_t rank) { return all + (rank * count + n) * 3; };
    float top = of(0)[0];
    for (std::int64_t r = 1; r < ranks; ++r) top = of(r)[0] > top ? of(r)[0] : top;
    double sum = 0, logit = 0;
    for (std::int64_t r = 0; r < ranks; ++r) {
      sum += static_cast<double>(of(r)[1]) * std::exp(static_cast<double>(of(r)[0]) - static_cast<double>(top));
      logit += static_cast<double>(of(r)[2]);
    }
    out[2 * n] = top;
    out[2 * n + 1] = static_cast<float>(sum);
    if (target[n] >= 0) sums += token_loss(top, sum, logit, z_loss);
  }
  return sums;
}

void cross_entropy_gradient_part(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first,
                                 const at::Tensor& softmax, double scale, double z_loss) {
  if (logits.is_cuda()) return cuda::cross_entropy_gradient_part(logits, targets, first, softmax, scale, z_loss);
  const auto* target = targets.const_data_ptr<std::int32_t>();
  with_type(logits, [&]<class T>(T) {
    const auto matrix = rows<T>(logits);
    const auto known = rows<float>(softmax);
    parallel(matrix.count, [=](std::int64_t n) {
      T* row = matrix[n];
      if (target[n] < 0) {
        std::fill(row, row + matrix.width, T(0));
        return;
      }
      const float top = known[n][0], sum = known[n][1];
      const std::int64_t column = target[n] - first;
      const bool here = column >= 0 && column < matrix.width;
      const float logit = here ? get(row[column]) : 0.0F;
      const float weight = softmax_weight(top, sum, z_loss), factor = static_cast<float>(scale);
      softmax_gradient(row, top, factor * weight / sum, matrix.width);
      if (here) put(row[column], target_gradient(top, sum, logit, factor, weight));
    });
  });
}

}  // namespace trireme::kernels

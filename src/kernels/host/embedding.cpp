// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/embedding.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cuda.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"
#include "trireme/base/streaming.hpp"

namespace trireme::kernels {
namespace {

void expect_vector(const at::Tensor& ids) {
  invariant(ids.dim() == 1 && ids.scalar_type() == at::kInt && ids.is_contiguous(),
            "embedding: ids must be a contiguous int32 vector");
}

const std::int32_t* expect_ids(const at::Tensor& ids, std::int64_t vocab) {
  const auto* id = ids.const_data_ptr<std::int32_t>();
  invariant(std::all_of(id, id + ids.numel(), [&](std::int32_t i) { return i >= 0 && i < vocab; }),
            "embedding: a token id is outside the vocabulary");
  return id;
}

/// The positions of `ids` grouped by id, each group in rising order; `begin[g]` starts group g, the last entry ends the
/// last one.
struct Groups {
  std::vector<std::int64_t> position, begin;
};

Groups group_by_id(const std::int32_t* ids, std::int64_t n) {
  Groups groups;
  groups.position.resize(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) groups.position[static_cast<std::size_t>(i)] = i;
  std::stable_sort(groups.position.begin(), groups.position.end(),
                   [&](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
  for (std::size_t i = 0; i < groups.position.size(); ++i) {
    if (i == 0 || ids[groups.position[i]] != ids[groups.position[i - 1]])
      groups.begin.push_back(static_cast<std::int64_t>(i));
  }
  groups.begin.push_back(n);
  return groups;
}

}  // namespace

void embedding_gather(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& out) {
  expect_vector(ids);
  expect_shape(out, {ids.size(0), table.size(1)}, table.scalar_type(), "embedding_gather: out does not fit");
  if (table.is_cuda()) return cuda::embedding_gather(ids, table, out);
  const auto* id = expect_ids(ids, table.size(0));
  with_type(table, [&]<class T>(T) {
    const auto from = rows<T>(table);
    const auto to = rows<T>(out);
    parallel(to.count, [=](std::int64_t n) { std::copy_n(from[id[n]], from.width, to[n]); });
  });
}

void embedding_scatter_add(const at::Tensor& ids, const at::Tensor& d_out, const Grad& d_table) {
  invariant(d_table.tensor.dim() == 2 && d_table.tensor.is_contiguous(),
            "embedding_scatter_add: the gradient must be a contiguous matrix");
  expect_vector(ids);
  const auto to = rows<float>(d_table.tensor);
  expect_shape(d_out, {ids.size(0), to.width}, d_out.scalar_type(), "embedding_scatter_add: d_out does not fit");
  if (d_out.is_cuda()) return cuda::embedding_scatter_add(ids, d_out, d_table);
  const auto* id = expect_ids(ids, to.count);
  if (!d_table.accumulate) {
    parallel_chunks(to.count * to.width, 1 << 16, [=](std::int64_t begin, std::int64_t end) {
      stream_zeros(reinterpret_cast<std::byte*>(to.data + begin),
                   static_cast<std::size_t>(end - begin) * sizeof(float));
    });
  }
  const auto groups = group_by_id(id, ids.size(0));
  with_type(d_out, [&]<class T>(T) {
    const auto from = rows<T>(d_out);
    parallel(static_cast<std::int64_t>(groups.begin.size()) - 1, [&](std::int64_t g) {
      const auto group = static_cast<std::size_t>(g);
      float* row = to[id[groups.position[static_cast<std::size_t>(groups.begin[group])]]];
      for (std::int64_t i = groups.begin[group]; i < groups.begin[group + 1]; ++i) {
        const T* add = from[groups.position[static_cast<std::size_t>(i)]];
        in_eights(to.width, [=](std::int64_t d, auto lanes) {
          store(row + d, load(row + d, lanes) + load(add + d, lanes), lanes);
        });
      }
    });
  });
}

}  // namespace trireme::kernels

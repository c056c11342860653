// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>

#include "kernels/cuda.hpp"
#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/tensors.hpp"

namespace trireme::kernels::cuda {

void rotate(const at::Tensor& x, const RopeTable& table, std::int64_t seq_len, Rotation direction) {
  with_type(x, [&]<class T>(T) {
    const std::int64_t half = table.cos.size(1);
    Matrix<T> heads = matrix<T>(x);
    heads.data += table.begin;  // of the first rotated element
    rotate(RotateHeads<T>{.x = heads,
                          .cos = data<const float>(table.cos),
                          .sin = data<const float>(table.sin),
                          .half = half,
                          .head_dim = table.head_dim > 0 ? table.head_dim : 2 * half,
                          .seq_len = seq_len,
                          .adjacent = table.adjacent_pairs,
                          .sign = direction == Rotation::forward ? 1.0F : -1.0F});
  });
}

void swiglu(const at::Tensor& gate_up, const at::Tensor& out) {
  with_type(gate_up, [&]<class T>(T) { swiglu(matrix<const T>(gate_up), matrix<T>(out)); });
}

void swiglu_backward(const at::Tensor& d_out, const at::Tensor& gate_up, const at::Tensor& d_gate_up,
                     const at::Tensor& out) {
  with_type(gate_up, [&]<class T>(T) {
    swiglu_backward(matrix<const T>(d_out), matrix<const T>(gate_up), matrix<T>(d_gate_up), matrix<T>(out));
  });
}

void geglu_tanh(const at::Tensor& gate_up, const at::Tensor& out) {
  with_type(gate_up, [&]<class T>(T) { geglu_tanh(matrix<const T>(gate_up), matrix<T>(out)); });
}

void geglu_tanh_backward(const at::Tensor& d_out, const at::Tensor& gate_up, const at::Tensor& d_gate_up,
                         const at::Tensor& out) {
  with_type(gate_up, [&]<class T>(T) {
    geglu_tanh_backward(matrix<const T>(d_out), matrix<const T>(gate_up), matrix<T>(d_gate_up), matrix<T>(out));
  });
}

void gelu_tanh(const at::Tensor& x, const at::Tensor& out) {
  with_type(x, [&]<class T>(T) { gelu_tanh(matrix<const T>(x), matrix<T>(out)); });
}

void gelu_tanh_backward(const at::Tensor& d_out, const at::Tensor& x, const at::Tensor& d_x, const at::Tensor& out) {
  with_type(x, [&]<class T>(T) {
    gelu_tanh_backward(matrix<const T>(d_out), matrix<const T>(x), matrix<T>(d_x), matrix<T>(out));
  });
}

void add_bias(const at::Tensor& y, const at::Tensor& bias) {
  with_type(y, [&]<class T>(T) { add_bias(matrix<T>(y), data<const T>(bias)); });
}

void bias_gradient(const at::Tensor& d_y, const Grad& d_bias) {
  const std::int64_t width = d_y.size(1);
  const std::int64_t chunks = column_chunks(d_y.size(0), width, static_cast<int>(d_y.element_size()));
  const at::Tensor partial = at::empty({chunks, width}, d_y.options().dtype(at::kFloat));
  with_type(d_y, [&]<class T>(T) { column_sums(matrix<const T>(d_y), data<float>(partial)); });
  sum_chunks(data<const float>(partial), chunks, width, width, data<float>(d_bias.tensor), d_bias.accumulate);
}

namespace {

void gather(const at::Tensor& ids, std::int64_t first, bool part, const at::Tensor& table, const at::Tensor& out) {
  with_type(table, [&]<class T>(T) {
    embedding_gather(data<const std::int32_t>(ids), first, part, matrix<const T>(table), matrix<T>(out));
  });
}

void scatter_add(const at::Tensor& ids, std::int64_t first, bool part, const at::Tensor& d_out, const Grad& d_table) {
  at::Tensor gradient = d_table.tensor;
  if (!d_table.accumulate) gradient.zero_();
  const auto [sorted, position] = at::sort(ids, /*stable=*/std::optional<bool>(true), 0, /*descending=*/false);
  const at::Tensor partial = at::empty({scatter_chunks(d_out.size(0)), 2, d_out.size(1)}, gradient.options());
  with_type(d_out, [&, &sorted = sorted, &position = position]<class T>(T) {
    embedding_scatter_add(data<const std::int32_t>(sorted), data<const std::int64_t>(position), first, part,
                          matrix<const T>(d_out), matrix<float>(gradient), data<float>(partial));
  });
}

}  // namespace

void embedding_gather(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& out) {
  gather(ids, 0, false, table, out);
}
void embedding_gather_part(const at::Tensor& ids, std::int64_t first, const at::Tensor& table, const at::Tensor& out) {
  gather(ids, first, true, table, out);
}
void embedding_scatter_add(const at::Tensor& ids, const at::Tensor& d_out, const Grad& d_table) {
  scatter_add(ids, 0, false, d_out, d_table);
}
void embedding_scatter_add_part(const at::Tensor& ids, std::int64_t first, const at::Tensor& d_out,
                                const Grad& d_table) {
  scatter_add(ids, first, true, d_out, d_table);
}

void cast(const at::Tensor& from, const at::Tensor& to) {
  with_type(from, [&]<class From>(From) {
    with_type(to, [&]<class To>(To) { cast(data<const From>(from), data<To>(to), from.numel()); });
  });
}

void add_into(const at::Tensor& from, const at::Tensor& to) {
  with_type(from, [&]<class From>(From) { add_into(data<const From>(from), data<float>(to), from.numel()); });
}

}  // namespace trireme::kernels::cuda

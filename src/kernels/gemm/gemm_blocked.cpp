// SPDX-License-Identifier: Apache-2.0
//
// The products of a linear layer by block_product: fp32 inside whatever the operands' types, operands widened while
// they are packed, gradients of weights summed into their fp32 buffer directly. Work is cut by the sizes only: the same
// bits for any number of threads.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/simd/block_product.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"
#include "kernels/simd/transpose.hpp"
#include "trireme/kernels/gemm_library.hpp"

namespace trireme::kernels {
namespace {

constexpr std::int64_t token_block = 512;  ///< tokens whose operands are packed at once
constexpr std::int64_t depth = 512;        ///< of one block_product: a packed panel of 64 columns then takes 128 KiB

template <class From, class To>
void copy_row(const From* from, To* to, std::int64_t n) {
  in_eights(n, [=](std::int64_t i, auto lanes) { store(to + i, load(from + i, lanes), lanes); });
}

/// Calls body(begin, size) for consecutive blocks of [0, n).
template <class Body>
void in_blocks(std::int64_t n, std::int64_t block, const Body& body) {
  for (std::int64_t begin = 0; begin < n; begin += block) body(begin, std::min(block, n - begin));
}

at::Tensor workspace(std::int64_t count, std::int64_t floats) { return at::empty({count, floats}, at::kFloat); }

/// Columns [begin, begin + width) of some rows of a matrix in fp32: where they are, or a widened copy.
template <class T>
class Widened {
 public:
  Widened(Rows<const T> from, std::int64_t row, std::int64_t rows, std::int64_t begin, std::int64_t width) {
    if constexpr (std::is_same_v<T, float>) {
      data_ = from[row] + begin;
      stride_ = from.stride;
    } else {
      copy_ = workspace(rows, width);
      auto* to = copy_.template mutable_data_ptr<float>();
      parallel(rows, [=](std::int64_t r) { copy_row(from[row + r] + begin, to + r * width, width); });
      data_ = to;
      stride_ = width;
    }
  }
  [[nodiscard]] const float* data() const { return data_; }
  [[nodiscard]] std::int64_t stride() const { return stride_; }

 private:
  at::Tensor copy_;
  const float* data_;
  std::int64_t stride_;
};

/// Calls body(scratch, begin, width) for panels of 64 columns of [0, n), each worker with `floats` of scratch.
template <class Body>
void for_each_panel(std::int64_t n, std::int64_t floats, const Body& body) {
  const std::int64_t panels = (n + panel_width - 1) / panel_width;
  const at::Tensor scratch = workspace(worker_count(panels), floats);
  auto* data = scratch.mutable_data_ptr<float>();
  parallel_workers(panels, [&](std::int64_t worker, std::int64_t panel) {
    body(data + worker * floats, panel * panel_width, std::min(panel_width, n - panel * panel_width));
  });
}

/// 64 columns of out in fp32: out itself, or a copy that `finish` converts.
template <class Out>
struct Sums {
  float* data;
  std::int64_t stride;

  Sums(Rows<Out> out, std::int64_t token, std::int64_t begin, float* scratch) : data(scratch), stride(panel_width) {
    if constexpr (std::is_same_v<Out, float>) {
      data = out[token] + begin;
      stride = out.stride;
    }
  }
  void finish(Rows<Out> out, std::int64_t token, std::int64_t tokens, std::int64_t begin, std::int64_t width) const {
    if constexpr (!std::is_same_v<Out, float>) {
      for (std::int64_t t = 0; t < tokens; ++t) copy_row(data + t * stride, out[token + t] + begin, width);
    }
  }
};

/// out = residual + x w^T; residual.data may be null.
template <class T, class Out>
void forward(Rows<const T> x, Rows<const T> w, Rows<const T> residual, Rows<Out> out) {
  in_blocks(x.count, token_block, [&](std::int64_t token, std::int64_t tokens) {
    const Widened<T> operand(x, token, tokens, 0, x.width);
    const std::int64_t scratch_floats = panel_width * (depth + token_block);
    for_each_panel(w.count, scratch_floats, [&](float* scratch, std::int64_t begin, std::int64_t width) {
      const Sums<Out> sums(out, token, begin, scratch + panel_width * depth);
      if (residual.data != nullptr) {
        for (std::int64_t t = 0; t < tokens; ++t) {
          copy_row(residual[token + t] + begin, sums.data + t * sums.stride, width);
        }
      }
      in_blocks(x.width, depth, [&](std::int64_t k, std::int64_t terms) {
        transpose(w[begin] + k, w.stride, width, terms, scratch, panel_width);
        block_product(tokens, width, terms, operand.data() + k, operand.stride(), scratch, panel_width, sums.data,
                      sums.stride, k > 0 || residual.data != nullptr);
      });
      sums.finish(out, token, tokens, begin, width);
    });
  });
}

/// out = d_y w.
template <class Upstream, class T>
void backward_input(Rows<const Upstream> d_y, Rows<const T> w, Rows<T> out) {
  in_blocks(d_y.count, token_block, [&](std::int64_t token, std::int64_t tokens) {
    const at::Tensor sums = workspace(tokens, w.width);
    auto* sum = sums.mutable_data_ptr<float>();
    in_blocks(w.count, depth, [&](std::int64_t row, std::int64_t terms) {
      const Widened<Upstream> operand(d_y, token, tokens, row, terms);
      for_each_panel(w.width, panel_width * depth, [&](float* panel, std::int64_t begin, std::int64_t width) {
        for (std::int64_t k = 0; k < terms; ++k) copy_row(w[row + k] + begin, panel + k * panel_width, width);
        block_product(tokens, width, terms, operand.data(), operand.stride(), panel, panel_width, sum + begin, w.width,
                      row > 0);
      });
    });
    parallel(tokens, [&](std::int64_t t) { copy_row(sum + t * w.width, out[token + t], w.width); });
  });
}

/// x in panels of 64 columns, each [tokens, 64].
template <class T>
at::Tensor panels_of(Rows<const T> x, std::int64_t token, std::int64_t tokens) {
  const std::int64_t count = (x.width + panel_width - 1) / panel_width;
  at::Tensor panels = workspace(count, tokens * panel_width);
  auto* to = panels.mutable_data_ptr<float>();
  parallel(count, [&](std::int64_t panel) {
    const std::int64_t begin = panel * panel_width;
    for (std::int64_t t = 0; t < tokens; ++t) {
      copy_row(x[token + t] + begin, to + (panel * tokens + t) * panel_width, std::min(panel_width, x.width - begin));
    }
  });
  return panels;
}

/// Floats between rows beyond a power of two: rows a power of two apart fall into few sets of the first-level cache,
/// and writing 64 of them side by side then evicts each line before it is full (transposes took 10% of a weight
/// gradient).
constexpr std::int64_t line = 16;

/// grad (+)= d_y^T x.
template <class Upstream, class T>
void backward_weight(Rows<const Upstream> d_y, Rows<const T> x, Rows<float> grad, bool accumulate) {
  in_blocks(x.count, token_block, [&](std::int64_t token, std::int64_t tokens) {
    const at::Tensor panels = panels_of(x, token, tokens);
    const auto* operand = panels.const_data_ptr<float>();
    const std::int64_t stride = tokens + line, floats = panel_width * (token_block + line);
    for_each_panel(d_y.width, floats, [&](float* d_y_t, std::int64_t row, std::int64_t rows) {
      transpose(d_y[token] + row, d_y.stride, tokens, rows, d_y_t, stride);
      in_blocks(x.width, panel_width, [&](std::int64_t begin, std::int64_t width) {
        block_product(rows, width, tokens, d_y_t, stride, operand + begin * tokens, panel_width, grad[row] + begin,
                      grad.stride, accumulate || token > 0);
      });
    });
  });
}

}  // namespace

at::Tensor blocked_linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& residual) {
  at::Tensor out = at::empty({x.size(0), w.size(0)}, x.options());
  with_type(x, [&]<class T>(T) {
    forward(rows<const T>(x), rows<const T>(w), residual.defined() ? rows<const T>(residual) : Rows<const T>{},
            rows<T>(out));
  });
  return out;
}

at::Tensor blocked_linear_wide(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor out = at::empty({x.size(0), w.size(0)}, at::kFloat);
  with_type(x, [&]<class T>(T) { forward(rows<const T>(x), rows<const T>(w), Rows<const T>{}, rows<float>(out)); });
  return out;
}

at::Tensor blocked_backward_input(const at::Tensor& d_y, const at::Tensor& w) {
  at::Tensor out = at::empty({d_y.size(0), w.size(1)}, w.options());
  with_type(w, [&]<class T>(T) {
    with_type(d_y, [&]<class Upstream>(Upstream) {
      backward_input(rows<const Upstream>(d_y), rows<const T>(w), rows<T>(out));
    });
  });
  return out;
}

void blocked_backward_weight(const at::Tensor& d_y, const at::Tensor& x, const Grad& grad) {
  with_type(x, [&]<class T>(T) {
    with_type(d_y, [&]<class Upstream>(Upstream) {
      backward_weight(rows<const Upstream>(d_y), rows<const T>(x), rows<float>(grad.tensor), grad.accumulate);
    });
  });
}

}  // namespace trireme::kernels

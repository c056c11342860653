// SPDX-License-Identifier: Apache-2.0
//
// The products of a linear layer by block_product: operands are widened to fp32 while they are packed, but for a weight
// gradient's in pairs of bf16 (where those are fast, libraries are as fast in the other products). Sums are fp32,
// those of weight gradients in their buffer directly. Work is cut by the sizes only: the same bits for any number of
// threads.
#include <ATen/ops/empty.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>

#include "kernels/gemm/packing.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/transpose.hpp"
#include "trireme/kernels/gemm_library.hpp"

namespace trireme::kernels {
namespace {

constexpr std::int64_t token_block = 512;  ///< tokens whose operands are packed at once
constexpr std::int64_t depth = 512;        ///< of one block_product: a packed panel of 64 columns then takes 128 KiB

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

/// Calls body(scratch, begin, width) for blocks of columns of [0, n), each worker with `floats` of scratch.
template <class Body>
void for_each_block(std::int64_t n, std::int64_t block, std::int64_t floats, const Body& body) {
  const std::int64_t blocks = (n + block - 1) / block;
  const at::Tensor scratch = workspace(worker_count(blocks), floats);
  auto* data = scratch.mutable_data_ptr<float>();
  parallel_workers(blocks, [&](std::int64_t worker, std::int64_t i) {
    body(data + worker * floats, i * block, std::min(block, n - i * block));
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
    for_each_block(w.count, panel_width, scratch_floats, [&](float* scratch, std::int64_t begin, std::int64_t width) {
      const Sums<Out> sums(out, token, begin, scratch + panel_width * depth);
      if (residual.data != nullptr) {
        for (std::int64_t t = 0; t < tokens; ++t) {
          copy_row(residual[token + t] + begin, sums.data + t * sums.stride, width);
        }
      }
      in_blocks(x.width, depth, [&](std::int64_t k, std::int64_t terms) {
        transpose(w[begin] + k, w.stride, width, terms, scratch, panel_width);
        block_product({tokens, width, terms}, {operand.data() + k, operand.stride()}, {scratch, panel_width},
                      {sums.data, sums.stride}, k > 0 || residual.data != nullptr);
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
      for_each_block(
          w.width, panel_width, panel_width * depth, [&](float* panel, std::int64_t begin, std::int64_t width) {
            pack(w, {.row = row, .rows = terms, .begin = begin, .width = width}, Panel<float>{panel, panel_width});
            block_product({tokens, width, terms}, {operand.data(), operand.stride()}, {panel, panel_width},
                          {sum + begin, w.width}, row > 0);
          });
    });
    parallel(tokens, [&](std::int64_t t) { copy_row(sum + t * w.width, out[token + t], w.width); });
  });
}

template <class Element>
Element* elements(const at::Tensor& workspace) {
  static_assert(sizeof(Element) == sizeof(float));
  return static_cast<Element*>(workspace.mutable_data_ptr());
}

/// x in panels of 64 columns, each [terms, 64].
template <class Element, class T>
at::Tensor panels_of(Rows<const T> x, std::int64_t token, std::int64_t tokens) {
  const std::int64_t count = (x.width + panel_width - 1) / panel_width, size = terms_of<Element>(tokens) * panel_width;
  at::Tensor panels = workspace(count, size);
  auto* to = elements<Element>(panels);
  parallel(count, [&](std::int64_t panel) {
    const std::int64_t begin = panel * panel_width;
    pack(x, {.row = token, .rows = tokens, .begin = begin, .width = std::min(panel_width, x.width - begin)},
         Panel<Element>{to + panel * size, panel_width});
  });
  return panels;
}

/// Elements between rows beyond a power of two, which would let them fall into few sets of the first-level cache.
constexpr std::int64_t line = 16;

/// Columns of d_y that are packed at once, for `terms` elements of each of `width`: a panel or, where
/// d_y comes from memory, which likes longer rows, as many as half of the second-level cache holds beside a panel of x,
/// less where a team has too few blocks otherwise.
std::int64_t columns_at_once(std::int64_t terms, std::int64_t width) {
  static const std::int64_t cache = std::max<std::int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), 256 << 10);
  const std::int64_t column = terms * 4;
  if (column * width < 16 * cache) return panel_width;
  const std::int64_t panels = (width + panel_width - 1) / panel_width, workers = worker_count(panels);
  return std::clamp<std::int64_t>(cache / 2 / column / panel_width, 1, (panels + workers - 1) / workers) * panel_width;
}

/// grad (+)= d_y^T x.
template <class Element, class Upstream, class T>
void backward_weight(Rows<const Upstream> d_y, Rows<const T> x, Rows<float> grad, bool accumulate) {
  in_blocks(x.count, token_block, [&](std::int64_t token, std::int64_t tokens) {
    const at::Tensor panels = panels_of<Element>(x, token, tokens);
    const Element* right = elements<Element>(panels);
    const std::int64_t terms = terms_of<Element>(tokens);
    const std::int64_t block = columns_at_once(terms, d_y.width), stride = block + line;
    for_each_block(d_y.width, block, terms * stride, [&](float* scratch, std::int64_t row, std::int64_t rows) {
      auto* left = reinterpret_cast<Element*>(scratch);
      pack(d_y, {.row = token, .rows = tokens, .begin = row, .width = rows}, Panel<Element>{left, stride});
      in_blocks(x.width, panel_width, [&](std::int64_t begin, std::int64_t width) {
        block_product_transposed({rows, width, terms}, {left, stride}, {right + begin * terms, panel_width},
                                 {grad[row] + begin, grad.stride}, accumulate || token > 0);
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

void blocked_backward_weight(const at::Tensor& d_y, const at::Tensor& x, const Grad& grad, bool pairs) {
  with_type(x, [&]<class T>(T) {
    with_type(d_y, [&]<class Upstream>(Upstream) {
      const auto run = [&]<class Element>(Element) {
        backward_weight<Element>(rows<const Upstream>(d_y), rows<const T>(x), rows<float>(grad.tensor),
                                 grad.accumulate);
      };
      if constexpr (std::is_same_v<T, c10::BFloat16> && std::is_same_v<Upstream, T>) {
        if (pairs) return run(Pair{});
      }
      run(float{});
    });
  });
}

}  // namespace trireme::kernels

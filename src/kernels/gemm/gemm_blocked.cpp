// SPDX-License-Identifier: Apache-2.0
//
// The products of a linear layer by block_product: operands are widened to fp32 while they are packed, except for a
// weight gradient's in pairs of bf16 (if those are fast, libraries are as fast in the other products). Sums are fp32,
// those of weight gradients in their buffer directly. Every sum is in the order of its terms, for any partition of the
// work: the same bits for any number of threads.
#include <ATen/ops/empty.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>

#include "kernels/gemm/pipeline.hpp"
#include "trireme/base/ceil_div.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm_library.hpp"

namespace trireme::kernels {
namespace {

constexpr std::int64_t token_block = 512;  ///< tokens whose operands are packed at once

/// Terms of one block_product, of `terms` in all: equal parts, sized so that a packed panel of 64 columns takes at most
/// a quarter of the second-level cache, but 128 KiB at least.
std::int64_t depth_for(std::int64_t terms) {
  invariant(terms > 0, "a product has terms");
  static const std::int64_t most =
      std::max<std::int64_t>(512, sysconf(_SC_LEVEL2_CACHE_SIZE) / 4 / (panel_width * std::int64_t{sizeof(float)}));
  constexpr std::int64_t even = 16;
  return ceil_div(ceil_div(terms, ceil_div(terms, most)), even) * even;
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

/// The `number`th block of [0, n).
struct Block {
  std::int64_t begin, size;
  Block(std::int64_t number, std::int64_t block, std::int64_t n)
      : begin(number * block), size(std::min(block, n - begin)) {}
};

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
  /// Values of `from` at the place of these sums: in place, or widened in these.
  template <class T>
  [[nodiscard]] Panel<const float> initial(Rows<const T> from, std::int64_t token, std::int64_t tokens,
                                           std::int64_t begin, std::int64_t width) const {
    if constexpr (std::is_same_v<T, float>) {
      return {from[token] + begin, from.stride};
    } else {
      for (std::int64_t t = 0; t < tokens; ++t) copy_row(from[token + t] + begin, data + t * stride, width);
      return {data, stride};
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
    // An item: 64 rows of w, `depth` of their columns.
    const std::int64_t depth = depth_for(x.width), parts = ceil_div(x.width, depth),
                       items = ceil_div(w.count, panel_width) * parts;
    const auto columns = [&](std::int64_t item) { return Block(item / parts, panel_width, w.count); };
    const auto terms = [&](std::int64_t item) { return Block(item % parts, depth, x.width); };
    in_pipeline(
        items, parts, panel_width * depth, std::is_same_v<Out, float> ? 0 : panel_width * token_block,
        [&](std::int64_t item, float* to) {
          const Block rows = columns(item), k = terms(item);
          return PackedColumns<T>(w, {.row = rows.begin, .rows = rows.size, .begin = k.begin, .width = k.size},
                                  {to, panel_width});
        },
        [&](std::int64_t) { return tiles_of(tokens); },
        [&](float* scratch, std::int64_t item, const float* packed, auto& meanwhile) {
          const auto [begin, width] = columns(item);
          const Block k = terms(item);
          const Sums<Out> sums(out, token, begin, scratch);
          Panel<const float> before{k.begin > 0 ? sums.data : nullptr, sums.stride};
          if (residual.data != nullptr && k.begin == 0) before = sums.initial(residual, token, tokens, begin, width);
          multiply<false, float>({tokens, width, k.size}, {operand.data() + k.begin, operand.stride()},
                                 {packed, panel_width}, {sums.data, sums.stride}, before, meanwhile);
          if (k.begin + k.size == x.width) sums.finish(out, token, tokens, begin, width);
        });
  });
}

/// out = d_y w.
template <class Upstream, class T>
void backward_input(Rows<const Upstream> d_y, Rows<const T> w, Rows<T> out) {
  in_blocks(d_y.count, token_block, [&](std::int64_t token, std::int64_t tokens) {
    constexpr bool direct = std::is_same_v<T, float>;
    const at::Tensor sums = workspace(direct ? 0 : tokens, w.width);
    Panel<float> sum{sums.mutable_data_ptr<float>(), w.width};
    if constexpr (direct) sum = {out[token], out.stride};
    const std::int64_t depth = depth_for(w.count);
    in_blocks(w.count, depth, [&](std::int64_t row, std::int64_t terms) {
      const Widened<Upstream> operand(d_y, token, tokens, row, terms);
      in_pipeline(
          ceil_div(w.width, panel_width), 1, panel_width * depth, 0,
          [&](std::int64_t item, float* to) {
            const Block columns(item, panel_width, w.width);
            return PackedRows<float, T>(w, {.row = row, .rows = terms, .begin = columns.begin, .width = columns.size},
                                        {to, panel_width});
          },
          [&](std::int64_t) { return tiles_of(tokens); },
          [&](float*, std::int64_t item, const float* packed, auto& meanwhile) {
            const auto [begin, width] = Block(item, panel_width, w.width);
            const Panel<float> c{sum.data + begin, sum.stride};
            multiply<false, float>({tokens, width, terms}, {operand.data(), operand.stride()}, {packed, panel_width}, c,
                                   {row > 0 ? c.data : nullptr, c.stride}, meanwhile);
          });
    });
    if constexpr (!direct)
      parallel(tokens, [&](std::int64_t t) { copy_row(sum.data + t * sum.stride, out[token + t], w.width); });
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
  const std::int64_t count = ceil_div(x.width, panel_width), terms = terms_of<Element>(tokens);
  at::Tensor panels = workspace(count, terms * panel_width);
  auto* to = elements<Element>(panels);
  parallel(terms, [&](std::int64_t k) {
    for (std::int64_t panel = 0; panel < count; ++panel) {
      const Block columns(panel, panel_width, x.width);
      pack_row(x, {.row = token, .rows = tokens, .begin = columns.begin, .width = columns.size}, k,
               to + (panel * terms + k) * panel_width);
    }
  });
  return panels;
}

/// Elements between rows beyond a power of two, which would let them fall into few sets of the first-level cache.
constexpr auto line = static_cast<std::int64_t>(cache_line / sizeof(float));

/// Columns of d_y that are packed at once: rows of several cache lines; as many as fit a quarter of the second-level
/// cache if the panels of x, which every block reads, take more than half of it; fewer if a team would have too few
/// blocks. width: of d_y; x_width: of x; terms: elements of a column.
std::int64_t columns_at_once(std::int64_t width, std::int64_t x_width, std::int64_t terms) {
  static const std::int64_t cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  constexpr std::int64_t usual = 96, element = 4;
  const std::int64_t most =
      x_width * terms * element <= cache / 2 ? usual : std::max(usual, cache / 4 / (terms * element) / line * line);
  const std::int64_t workers = worker_count(ceil_div(width, line));
  return std::min(most, ceil_div(ceil_div(width, workers), line) * line);
}

/// grad (+)= d_y^T x.
template <class Element, class Upstream, class T>
void backward_weight(Rows<const Upstream> d_y, Rows<const T> x, Rows<float> grad, bool accumulate) {
  const std::int64_t block = columns_at_once(d_y.width, x.width, terms_of<Element>(std::min(x.count, token_block)));
  const std::int64_t stride = block + line;
  in_blocks(x.count, token_block, [&](std::int64_t token, std::int64_t tokens) {
    const at::Tensor panels = panels_of<Element>(x, token, tokens);
    const Element* right = elements<Element>(panels);
    const std::int64_t terms = terms_of<Element>(tokens);
    const auto columns = [&](std::int64_t item) { return Block(item, block, d_y.width); };
    in_pipeline(
        ceil_div(d_y.width, block), 1, terms * stride, 0,
        [&](std::int64_t item, float* to) {
          return PackedRows<Element, Upstream>(
              d_y, {.row = token, .rows = tokens, .begin = columns(item).begin, .width = columns(item).size},
              {reinterpret_cast<Element*>(to), stride});
        },
        [&](std::int64_t item) { return tiles_of(columns(item).size) * ceil_div(x.width, panel_width); },
        [&](float*, std::int64_t item, const float* packed, auto& meanwhile) {
          const auto [row, rows] = columns(item);
          const Panel<const Element> left{reinterpret_cast<const Element*>(packed), stride};
          in_blocks(x.width, panel_width, [&](std::int64_t begin, std::int64_t width) {
            const Panel<float> c{grad[row] + begin, grad.stride};
            multiply<true, Element>({rows, width, terms}, left, {right + begin * terms, panel_width}, c,
                                    {accumulate || token > 0 ? c.data : nullptr, c.stride}, meanwhile);
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

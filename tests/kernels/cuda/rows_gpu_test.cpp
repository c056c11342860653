// SPDX-License-Identifier: Apache-2.0
// RoPE, activation functions, biases, embeddings and casts on a device against those of the host.
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>

#include <limits>

#include "kernels/cuda.hpp"
#include "kernels/cuda/attention_heads.hpp"
#include "support/gpu.hpp"
#include "support/tensors.hpp"
#include "trireme/kernels/bias.hpp"
#include "trireme/kernels/cast.hpp"
#include "trireme/kernels/embedding.hpp"
#include "trireme/kernels/geglu.hpp"
#include "trireme/kernels/gelu.hpp"
#include "trireme/kernels/swiglu.hpp"
#include "trireme/kernels/vocabulary.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;
using test::same_bits;
using test::to_kernels;

using Size = std::pair<std::int64_t, std::int64_t>;
constexpr std::array<Size, 5> sizes{{{1, 1}, {5, 7}, {9, 64}, {4, 3000}, {300, 40}}};
constexpr std::array<at::ScalarType, 2> types{at::kFloat, at::kBFloat16};

/// Compares every output of `on_device` with that of `on_host`; both start from copies of the same tensors.
template <class Device, class Host>
void compare(std::vector<at::Tensor> tensors, at::ScalarType type, const Device& on_device, const Host& on_host) {
  std::vector<at::Tensor> there, here;
  for (const at::Tensor& t : tensors) {
    there.push_back(to_kernels(t));
    here.push_back(t.clone());
  }
  on_device(there);
  on_host(here);
  for (std::size_t i = 0; i < here.size(); ++i) {
    if (!here[i].is_floating_point()) continue;
    EXPECT_LT(relative_error(there[i].cpu(), here[i]), type == at::kFloat ? 3e-6 : 4e-3)
        << "tensor " << i << " of sizes " << here[i].sizes() << " " << type;
  }
}

using Tensors = std::vector<at::Tensor>;

class RowsOnDevice : public test::GpuTest {};

TEST_F(RowsOnDevice, RotateFollowsTheHost) {
  for (const auto type : types)
    for (const auto& [heads, head_dim] : {Size{1, 2}, {3, 10}, {2, 16}, {5, 128}}) {
      const RopeTable table = rope_table(11, head_dim, 300, std::nullopt);
      const RopeTable there{to_kernels(table.cos), to_kernels(table.sin)};
      for (const auto direction : {Rotation::forward, Rotation::inverse})
        for (const std::int64_t gap : {0, 8, 3}) {  // between rows: none, whole packs, not
          const auto view = [&](const at::Tensor& x) { return x.slice(1, 0, x.size(1) - gap); };
          compare(
              {at::randn({22, heads * head_dim + gap}).to(type)}, type,
              [&](Tensors& t) { cuda::rotate(view(t[0]), there, 11, direction); },
              [&](Tensors& t) { rotate(view(t[0]), table, 11, direction); });
        }
    }
}

TEST_F(RowsOnDevice, RotatesAPartOfHeadsAndNeighboursAsTheHostDoes) {
  for (const auto type : types)
    for (const bool neighbours : {false, true})
      for (const auto& [head_dim, width] : {Size{10, 6}, {32, 16}, {16, 16}, {12, 4}}) {
        RopeTable table = rope_table(11, width, 300, std::nullopt);
        table.head_dim = head_dim;
        table.begin = neighbours ? head_dim - width : 0;
        table.adjacent_pairs = neighbours;
        RopeTable there = table;
        there.cos = to_kernels(table.cos);
        there.sin = to_kernels(table.sin);
        for (const auto direction : {Rotation::forward, Rotation::inverse})
          compare(
              {at::randn({22, 3 * head_dim}).to(type)}, type,
              [&](Tensors& t) { cuda::rotate(t[0], there, 11, direction); },
              [&](Tensors& t) { rotate(t[0], table, 11, direction); });
      }
}

/// Gradients of attention in the layout of libraries, compared with copies that are rotated back.
TEST_F(RowsOnDevice, GradientsOfHeadsArePlacedAndRotatedBack) {
  struct Rope {
    std::int64_t width;  ///< 0: none
    bool neighbours;
  };
  constexpr std::int64_t batch = 2, tokens = 11;
  for (const auto type : types)
    for (const auto& [heads, kv_heads, head_dim] : {std::array<std::int64_t, 3>{4, 2, 32}, {6, 1, 16}, {3, 3, 10}})
      for (const Rope rope : {Rope{0, false},
                              {head_dim, false},
                              {head_dim, true},
                              {head_dim / 2 / 2 * 2, false},
                              {head_dim / 2 / 2 * 2, true}})
        for (const bool by_token : {true, false})
          for (const std::int64_t gap : {0, 8, 3}) {
            const AttentionShape s{batch, tokens, heads, kv_heads, head_dim};
            const auto source = [&](std::int64_t n) {
              return by_token ? at::randn({batch, tokens, n, head_dim}).to(type).transpose(1, 2)
                              : at::randn({batch, n, tokens, head_dim}).to(type);
            };
            const auto placed = [&](const at::Tensor& x) {  // to_kernels makes all contiguous
              return by_token ? to_kernels(x.transpose(1, 2)).transpose(1, 2) : to_kernels(x);
            };
            const at::Tensor q = source(heads), k = source(kv_heads), v = source(kv_heads);
            const std::int64_t q_end = heads * head_dim, k_end = q_end + kv_heads * head_dim,
                               width = k_end + kv_heads * head_dim;
            const at::Tensor wide = at::full({batch * tokens, width + gap}, 7.0, type), there = to_kernels(wide),
                             here = wide.clone();
            RopeTable table, table_there;
            RopeTable queries, queries_there;
            if (rope.width > 0) {
              table = rope_table(tokens, rope.width, 300, std::nullopt);
              table.head_dim = head_dim;
              table.adjacent_pairs = rope.neighbours;
              queries = table;
              queries.cos = 2 * table.cos;
              table_there = table, queries_there = queries;
              table_there.cos = to_kernels(table.cos), table_there.sin = to_kernels(table.sin);
              queries_there.cos = to_kernels(queries.cos), queries_there.sin = table_there.sin;
            }
            cuda::put_gradients({placed(q), placed(k), placed(v)}, s, {.queries = queries_there, .keys = table_there},
                                {there.slice(1, 0, q_end), there.slice(1, q_end, k_end), there.slice(1, k_end, width)});
            cuda::by_head(here.slice(1, 0, q_end), s, heads).copy_(q);
            cuda::by_head(here.slice(1, q_end, k_end), s, kv_heads).copy_(k);
            cuda::by_head(here.slice(1, k_end, width), s, kv_heads).copy_(v);
            if (rope.width > 0) {
              rotate(here.slice(1, 0, q_end), queries, tokens, Rotation::inverse);
              rotate(here.slice(1, q_end, k_end), table, tokens, Rotation::inverse);
            }
            const at::Tensor found = there.cpu();
            EXPECT_LT(relative_error(found.slice(1, 0, k_end), here.slice(1, 0, k_end)),
                      type == at::kFloat ? 3e-7 : 4e-3);
            EXPECT_TRUE(same_bits(found.slice(1, k_end).contiguous(), here.slice(1, k_end).contiguous()))
                << "values, and what lies between rows";
          }
}

TEST_F(RowsOnDevice, GegluFollowsTheHost) {
  for (const auto type : types)
    for (const auto& [rows, width] : sizes) {
      const at::Tensor gate_up = at::randn({rows, 2 * width}).to(type), out = at::randn({rows, width}).to(type);
      compare(
          {gate_up, out}, type, [](Tensors& t) { cuda::geglu_tanh(t[0], t[1]); },
          [](Tensors& t) { geglu_tanh(t[0], t[1]); });
      compare(
          {out, gate_up, gate_up.clone()}, type, [](Tensors& t) { cuda::geglu_tanh_backward(t[0], t[1], t[2], t[0]); },
          [](Tensors& t) { geglu_tanh_backward(t[0], t[1], t[2], t[0]); });
    }
}

TEST_F(RowsOnDevice, SwigluFollowsTheHost) {
  for (const auto type : types)
    for (const auto& [rows, width] : sizes) {
      const at::Tensor gate_up = at::randn({rows, 2 * width}).to(type), out = at::randn({rows, width}).to(type);
      compare(
          {gate_up, out}, type, [](Tensors& t) { cuda::swiglu(t[0], t[1]); }, [](Tensors& t) { swiglu(t[0], t[1]); });
      compare(
          {out, gate_up, gate_up.clone()}, type, [](Tensors& t) { cuda::swiglu_backward(t[0], t[1], t[2], t[0]); },
          [](Tensors& t) { swiglu_backward(t[0], t[1], t[2], t[0]); });
    }
}

TEST_F(RowsOnDevice, GeluFollowsTheHost) {
  for (const auto type : types)
    for (const auto& [rows, width] : sizes) {
      const at::Tensor x = (3 * at::randn({rows, width})).to(type);
      compare(
          {x, x.clone()}, type, [](Tensors& t) { cuda::gelu_tanh(t[0], t[1]); },
          [](Tensors& t) { gelu_tanh(t[0], t[1]); });
      compare(
          {at::randn({rows, width}).to(type), x, x.clone()}, type,
          [](Tensors& t) { cuda::gelu_tanh_backward(t[0], t[1], t[0], t[2]); },
          [](Tensors& t) { gelu_tanh_backward(t[0], t[1], t[0], t[2]); });
    }
}

TEST_F(RowsOnDevice, BiasFollowsTheHost) {
  for (const auto type : types)
    for (const auto& [rows, width] : sizes) {
      const at::Tensor y = at::randn({rows, width}).to(type);
      compare(
          {y, at::randn({width}).to(type)}, type, [](Tensors& t) { cuda::add_bias(t[0], t[1]); },
          [](Tensors& t) { add_bias(t[0], t[1]); });
      for (const bool accumulate : {false, true})
        compare(
            {y, at::full({width}, accumulate ? 100.0 : NAN, at::kFloat)}, at::kFloat,
            [=](Tensors& t) { cuda::bias_gradient(t[0], {.tensor = t[1], .accumulate = accumulate}); },
            [=](Tensors& t) { bias_gradient(t[0], {.tensor = t[1], .accumulate = accumulate}); });
    }
}

TEST_F(RowsOnDevice, EmbeddingFollowsTheHost) {
  constexpr std::int64_t vocab = 19;
  for (const auto type : types)
    for (const auto& [rows, width] : sizes) {
      const at::Tensor ids = at::randint(0, vocab, {rows}, at::kInt), table = at::randn({vocab, width}).to(type),
                       out = at::randn({rows, width}).to(type);
      compare(
          {ids, table, out}, type, [](Tensors& t) { cuda::embedding_gather(t[0], t[1], t[2]); },
          [](Tensors& t) { embedding_gather(t[0], t[1], t[2]); });
      for (const bool accumulate : {false, true})
        compare(
            {ids, out, at::full({vocab, width}, accumulate ? 10.0 : NAN, at::kFloat)}, at::kFloat,
            [=](Tensors& t) { cuda::embedding_scatter_add(t[0], t[1], {.tensor = t[2], .accumulate = accumulate}); },
            [=](Tensors& t) { embedding_scatter_add(t[0], t[1], {.tensor = t[2], .accumulate = accumulate}); });
    }
}

TEST_F(RowsOnDevice, AnEmbeddingSumsLongRunsOfOneTokenInOneOrder) {
  constexpr std::int64_t width = 40;
  for (const auto type : types)
    for (const std::int64_t rows : {32, 33, 64, 331})
      for (const std::int64_t vocab : {1, 2, 5}) {
        const at::Tensor ids = at::randint(0, vocab, {rows}, at::kInt), out = at::randn({rows, width}).to(type),
                         here = at::full({vocab + 2, width}, 3.0, at::kFloat), there = to_kernels(here),
                         again = to_kernels(here);
        embedding_scatter_add(ids, out, {.tensor = here, .accumulate = true});
        for (const at::Tensor& grad : {there, again})
          cuda::embedding_scatter_add(to_kernels(ids), to_kernels(out), {.tensor = grad, .accumulate = true});
        EXPECT_LT(relative_error(there.cpu(), here), 3e-6) << rows << " rows of " << vocab << " tokens";
        EXPECT_TRUE(same_bits(there.cpu(), again.cpu()));
      }
}

TEST_F(RowsOnDevice, PartsOfAnEmbeddingFollowTheHost) {
  constexpr std::int64_t vocab = 19, first = 6, held = 7;
  for (const auto type : types)
    for (const auto& [rows, width] : sizes) {
      at::Tensor ids = at::randint(0, vocab, {rows}, at::kInt);
      ids[0] = first;  // one at least is here
      const at::Tensor table = at::randn({held, width}).to(type), out = at::randn({rows, width}).to(type);
      compare(
          {ids, table, out}, type, [](Tensors& t) { cuda::embedding_gather_part(t[0], first, t[1], t[2]); },
          [](Tensors& t) { embedding_gather_part(t[0], first, t[1], t[2]); });
      for (const bool accumulate : {false, true}) {
        const auto grad = [=](const at::Tensor& t) { return Grad{.tensor = t, .accumulate = accumulate}; };
        compare(
            {ids, out, at::full({held, width}, accumulate ? 10.0 : NAN, at::kFloat)}, at::kFloat,
            [=](Tensors& t) { cuda::embedding_scatter_add_part(t[0], first, t[1], grad(t[2])); },
            [=](Tensors& t) { embedding_scatter_add_part(t[0], first, t[1], grad(t[2])); });
      }
    }
}

TEST_F(RowsOnDevice, CastsRoundAsTheHostDoes) {
  for (const std::int64_t n : {1, 3, 4, 1025, 5000})
    for (const auto from : types)
      for (const auto to : types) {
        const at::Tensor x = at::randn({n}).to(from), here = at::full({n}, 3, at::TensorOptions(to)),
                         there = to_kernels(here);
        cast(x, here);
        cuda::cast(to_kernels(x), there);
        EXPECT_TRUE(same_bits(there.cpu(), here));
        const at::Tensor sum = at::randn({n}), sum_there = to_kernels(sum);
        add_into(x, sum);
        cuda::add_into(to_kernels(x), sum_there);
        EXPECT_TRUE(same_bits(sum_there.cpu(), sum));
      }
}

}  // namespace
}  // namespace trireme::kernels

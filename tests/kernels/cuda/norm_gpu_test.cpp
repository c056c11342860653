// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm on a device against those of the host.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

#include <limits>

#include "kernels/cuda.hpp"
#include "support/gpu.hpp"
#include "support/tensors.hpp"
#include "trireme/kernels/layer_norm.hpp"
#include "trireme/kernels/rms_norm.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;
using test::same_bits;
using test::to_kernels;

constexpr double eps = 1e-2;

struct Case {
  std::int64_t rows, width;
  at::ScalarType type;
  bool accumulate, residual, apart;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  // One element; odd; whole packs; many packs a thread; more chunks of rows than blocks.
  for (const auto& [rows, width] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 7}, {33, 65}, {40, 256}, {2, 4104}, {3, 8200}, {1100, 24}})
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const bool flag : {false, true}) all.push_back({rows, width, type, flag, !flag, flag});
  return all;
}

double tolerance(const Case& c) { return c.type == at::kFloat ? 3e-6 : 4e-3; }

/// A matrix; where rows are apart, a view of a wider one.
at::Tensor matrix(const Case& c, const at::Tensor& values, bool on_kernels) {
  if (!c.apart) return on_kernels ? to_kernels(values) : values.clone();
  at::Tensor wide = at::full({c.rows, c.width + 3}, 7, values.options());
  wide.slice(1, 3).copy_(values);
  return (on_kernels ? to_kernels(wide) : wide).slice(1, 3);
}

struct Outputs {
  at::Tensor y, again, statistics, d_x, d_weight, d_bias;
};

void expect_close(const Outputs& device, const Outputs& host, const Case& c) {
  const auto close = [&](const at::Tensor& a, const at::Tensor& b, double limit, const char* what) {
    if (b.defined()) {
      EXPECT_LT(relative_error(a.cpu(), b), limit) << what << " of " << c.rows << " x " << c.width << " " << c.type;
    }
  };
  close(device.y, host.y, tolerance(c), "y");
  close(device.statistics, host.statistics, 3e-6, "statistics");
  close(device.d_x, host.d_x, tolerance(c), "d_x");
  close(device.d_weight, host.d_weight, 1e-5, "d_weight");
  close(device.d_bias, host.d_bias, 1e-5, "d_bias");
  EXPECT_TRUE(same_bits(device.y.cpu(), device.again.cpu()));
}

class NormOnDevice : public test::GpuTest {};

TEST_F(NormOnDevice, RmsNormFollowsTheHost) {
  for (const Case& c : cases()) {
    const float offset = c.residual ? 1 : 0;
    const at::Tensor x = at::randn({c.rows, c.width}).to(c.type), d_y = at::randn({c.rows, c.width}).to(c.type),
                     residual = at::randn({c.rows, c.width}).to(c.type),
                     weight = (1 + 0.5 * at::randn({c.width})).to(c.type),
                     start = at::full({c.width}, c.accumulate ? 1.0 : std::numeric_limits<double>::quiet_NaN());
    const auto run = [&](bool device) {
      const auto place = [&](const at::Tensor& t) { return device ? to_kernels(t) : t.clone(); };
      const auto in = [&](const at::Tensor& t) { return matrix(c, t, device); };
      const at::Tensor w = place(weight), xs = in(x), gs = in(d_y), r = c.residual ? in(residual) : at::Tensor();
      Outputs o{.y = in(residual),
                .again = in(d_y),
                .statistics = place(at::full({c.rows}, NAN)),
                .d_x = in(x),
                .d_weight = place(start),
                .d_bias = {}};
      const Grad grad{.tensor = o.d_weight, .accumulate = c.accumulate};
      if (device) {
        cuda::rms_norm(xs, w, eps, o.y, o.statistics, offset);
        cuda::rms_norm_again(xs, w, o.statistics, o.again, offset);
        cuda::rms_norm_backward(gs, xs, w, o.statistics, r, o.d_x, grad, offset);
      } else {
        rms_norm(xs, w, eps, o.y, o.statistics, offset);
        rms_norm_backward(gs, xs, w, o.statistics, r, o.d_x, grad, offset);
      }
      return o;
    };
    expect_close(run(true), run(false), c);
  }
}

TEST_F(NormOnDevice, LayerNormFollowsTheHost) {
  for (const Case& c : cases()) {
    if (c.width == 1) continue;  // a normed row of one element is only the bias
    const at::Tensor x = (at::randn({c.rows, c.width}) + 3).to(c.type), d_y = at::randn({c.rows, c.width}).to(c.type),
                     residual = at::randn({c.rows, c.width}).to(c.type),
                     weight = (1 + 0.5 * at::randn({c.width})).to(c.type), bias = at::randn({c.width}).to(c.type),
                     start = at::full({c.width}, c.accumulate ? 1.0 : std::numeric_limits<double>::quiet_NaN());
    const auto run = [&](bool device) {
      const auto place = [&](const at::Tensor& t) { return device ? to_kernels(t) : t.clone(); };
      const auto in = [&](const at::Tensor& t) { return matrix(c, t, device); };
      const at::Tensor w = place(weight), b = place(bias), xs = in(x), gs = in(d_y),
                       r = c.residual ? in(residual) : at::Tensor();
      Outputs o{.y = in(residual),
                .again = in(d_y),
                .statistics = place(at::full({2, c.rows}, NAN)),
                .d_x = in(x),
                .d_weight = place(start),
                .d_bias = place(start)};
      const Grad d_w{.tensor = o.d_weight, .accumulate = c.accumulate},
          d_b{.tensor = o.d_bias, .accumulate = c.accumulate};
      if (device) {
        cuda::layer_norm(xs, w, b, eps, o.y, o.statistics);
        cuda::layer_norm_again(xs, w, b, o.statistics, o.again);
        cuda::layer_norm_backward(gs, xs, w, o.statistics, r, o.d_x, d_w, d_b);
      } else {
        layer_norm(xs, w, b, eps, o.y, o.statistics);
        layer_norm_backward(gs, xs, w, o.statistics, r, o.d_x, d_w, d_b);
      }
      return o;
    };
    expect_close(run(true), run(false), c);
  }
}

TEST_F(NormOnDevice, BackwardMayOverwriteItsUpstreamGradientAndTheResidual) {
  for (const std::int64_t rows : {50, 1100}) {  // one row a block, and more
    const at::Tensor x = to_kernels(at::randn({rows, 96})), w = to_kernels(at::randn({96})),
                     rstd = to_kernels(at::randn({rows})), d_y = to_kernels(at::randn({rows, 96})),
                     residual = to_kernels(at::randn({rows, 96})), apart = to_kernels(at::randn({rows, 96})),
                     d_w = to_kernels(at::randn({96}));
    const Grad grad{.tensor = d_w, .accumulate = false};
    cuda::rms_norm_backward(d_y, x, w, rstd, residual, apart, grad);
    for (const bool into_residual : {false, true}) {
      const at::Tensor g = to_kernels(d_y.cpu()), r = to_kernels(residual.cpu());
      cuda::rms_norm_backward(g, x, w, rstd, r, into_residual ? r : g, grad);
      EXPECT_TRUE(same_bits((into_residual ? r : g).cpu(), apart.cpu()));
    }
  }
}

TEST_F(NormOnDevice, RepeatsBitForBit) {
  const at::Tensor x = to_kernels(at::randn({700, 72})), w = to_kernels(at::randn({72})),
                   rstd = to_kernels(at::randn({700})), d_x = to_kernels(at::randn({700, 72}));
  const at::Tensor once = to_kernels(at::randn({72})), twice = to_kernels(at::randn({72}));
  for (const at::Tensor& to : {once, twice})
    cuda::rms_norm_backward(x, x, w, rstd, {}, d_x, {.tensor = to, .accumulate = false});
  EXPECT_TRUE(same_bits(once.cpu(), twice.cpu()));
}

/// Rows of whole packs take one launch, others one each.
TEST_F(NormOnDevice, NormsOfHeadsFollowTheHost) {
  struct Heads {
    std::int64_t rows, q, k, head_dim, gap;
    bool taken;
  };
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const Heads& c : {Heads{1, 1, 1, 8, 0, true},
                           {37, 6, 2, 32, 0, true},
                           {600, 4, 1, 128, 8, true},
                           {21, 3, 3, 24, 0, true},
                           {9, 2, 1, 10, 0, false},
                           {9, 2, 2, 32, 3, false}})
      for (const float offset : {0.0F, 1.0F}) {
        const std::int64_t heads = c.q + c.k, width = heads * c.head_dim;
        const double tolerance = type == at::kFloat ? 3e-6 : 4e-3;
        const auto random = [&](std::int64_t rows, std::int64_t columns) {
          return at::randn({rows, columns}).to(type);
        };
        const at::Tensor x = random(c.rows, width + c.gap), g = random(c.rows, width + c.gap),
                         q = random(1, c.head_dim)[0], k = random(1, c.head_dim)[0];
        const auto use = [&](bool there) {
          const auto place = [&](const at::Tensor& t) { return there ? to_kernels(t) : t.clone(); };
          const auto columns = [&](const at::Tensor& t) { return t.slice(1, 0, width); };
          const HeadNorms norms{place(q), place(k), c.q, c.head_dim, offset};
          const at::Tensor from = place(x), y = place(at::full_like(x, NAN)), again = place(at::full_like(x, NAN)),
                           d = place(g), rstd = place(at::full({heads, c.rows}, NAN)),
                           d_q = place(at::full({c.head_dim}, 2.0)), d_k = place(at::full({c.head_dim}, NAN));
          const Grad by_q{.tensor = d_q, .accumulate = true}, by_k{.tensor = d_k};
          if (there) {
            EXPECT_EQ(cuda::rms_norm_heads(columns(from), norms, eps, columns(y), rstd, false), c.taken);
            if (!c.taken) return std::vector<at::Tensor>{};
            EXPECT_TRUE(cuda::rms_norm_heads(columns(from), norms, 0, columns(again), rstd, true));
            EXPECT_TRUE(cuda::rms_norm_heads_backward(columns(d), columns(from), norms, rstd, columns(d), by_q, by_k));
          } else {
            rms_norm_heads(columns(from), norms, eps, columns(y), rstd, false);
            rms_norm_heads(columns(from), norms, 0, columns(again), rstd, true);
            rms_norm_heads_backward(columns(d), columns(from), norms, rstd, columns(d), by_q, by_k);
          }
          EXPECT_TRUE(same_bits(columns(again).cpu().contiguous(), columns(y).cpu().contiguous()));
          return std::vector<at::Tensor>{columns(y).cpu(), rstd.cpu(), columns(d).cpu(), d_q.cpu(), d_k.cpu()};
        };
        const auto device = use(true), host = use(false);
        for (std::size_t i = 0; i < device.size(); ++i)
          EXPECT_LT(relative_error(device[i], host[i]), tolerance) << i << " of heads of " << c.head_dim << " " << type;
      }
}

}  // namespace
}  // namespace trireme::kernels

// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/muon.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "optim/adamw_pass.hpp"
#include "optim/team_space.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/split_fp32.hpp"
#include "trireme/kernels/gemm_library.hpp"
#include "trireme/optim/norm.hpp"

namespace trireme::optim {
namespace {

constexpr std::int64_t matrix_tile = std::int64_t{1} << 15;
constexpr float least_norm = 1e-7F;

/// Calls run(range, begin, end) for tiles of all ranges: elements [begin, end) of a range.
template <class Run>
void for_tiles_of(std::span<const MatrixRange> ranges, const Team& team, const Run& run) {
  struct Tile {
    std::size_t range;
    std::int64_t begin;
  };
  std::vector<Tile> tiles;
  for (std::size_t r = 0; r < ranges.size(); ++r)
    for (std::int64_t begin = 0; begin < ranges[r].elements; begin += matrix_tile) tiles.push_back({r, begin});
  parallel(team, static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i) {
    const auto& [r, begin] = tiles[static_cast<std::size_t>(i)];
    run(ranges[r], begin, std::min(ranges[r].elements, begin + matrix_tile));
  });
}

/// Calls run with a pointer to the elements of `messages`.
template <class Run>
void with_messages(const at::Tensor& messages, const Run& run) {
  if (messages.scalar_type() == at::kBFloat16)
    run(messages.mutable_data_ptr<c10::BFloat16>());
  else
    run(messages.mutable_data_ptr<float>());
}

[[gnu::always_inline]] inline void put_message(float value, float& to) { to = value; }
[[gnu::always_inline]] inline void put_message(float value, c10::BFloat16& to) { to.x = to_bf16_bits(value); }

/// to = fma(factor, from, a to): each fused multiply-add is written out.
void combine(const at::Tensor& to, float a, const at::Tensor& from, float factor, const Team& team) {
  auto* const out = to.mutable_data_ptr<float>();
  const auto* const in = from.const_data_ptr<float>();
  const std::int64_t elements = to.numel();
  parallel(team, (elements + matrix_tile - 1) / matrix_tile, [=](std::int64_t tile) {
    const std::int64_t end = std::min(elements, (tile + 1) * matrix_tile);
#pragma GCC ivdep
    for (std::int64_t i = tile * matrix_tile; i < end; ++i) out[i] = std::fma(factor, in[i], a * out[i]);
  });
}

/// The Frobenius norm, by an fp64 sum in a fixed order; rounded to bf16 for matrices in bf16.
float norm_of(const at::Tensor& u, const Team& team) {
  const auto elements = static_cast<std::size_t>(u.numel());
  if (u.scalar_type() == at::kFloat)
    return static_cast<float>(std::sqrt(sum_of_squares({u.const_data_ptr<float>(), elements}, team)));
  double sum = 0;  // on the calling thread
  for (const c10::BFloat16 value : std::span(u.const_data_ptr<c10::BFloat16>(), elements))
    sum += double{widen(value)} * double{widen(value)};
  return static_cast<float>(c10::BFloat16(static_cast<float>(std::sqrt(sum))));
}

at::Tensor newton_schulz_fp32(at::Tensor x, std::span<const optimizer::NewtonSchulzStep> steps, const Team& team) {
  for (const optimizer::NewtonSchulzStep& step : steps) {
    const at::Tensor gram = kernels::blocked_linear(x, x, {});
    const at::Tensor update = kernels::blocked_linear(gram, gram, {});  // gram is symmetric
    combine(update, static_cast<float>(step.c), gram, static_cast<float>(step.b), team);
    const at::Tensor next = kernels::blocked_backward_input(update, x);
    combine(next, 1.0F, x, static_cast<float>(step.a), team);
    x = next;
  }
  return x;
}

at::Tensor newton_schulz_bf16(at::Tensor x, std::span<const optimizer::NewtonSchulzStep> steps) {
  for (const optimizer::NewtonSchulzStep& step : steps) {
    const at::Tensor gram = at::mm(x, x.t());
    const at::Tensor update = at::addmm(gram, gram, gram, step.b, step.c);
    x = at::addmm(x, update, x, step.a);
  }
  return x;
}

}  // namespace

void prepare_matrices(const MuonStep& step, std::span<const MatrixRange> ranges, std::span<const float> gradient,
                      std::span<float> m, const at::Tensor& messages, const Team& team) {
  invariant(gradient.size() == m.size(), "the momentum is as long as the gradient");
  const auto factor = static_cast<float>(step.gradient_factor), rest = static_cast<float>(1 - step.momentum);
  const bool nesterov = step.nesterov;
  with_messages(messages, [&]<class Message>(Message* const all) {
    for_tiles_of(ranges, team, [=](const MatrixRange& range, std::int64_t begin, std::int64_t end) {
      const float* const from = gradient.data() + range.offset;
      float* const momentum = m.data() + range.offset;
      Message* const to = all + range.place;
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const float g = from[i] * factor;
        const float next = std::fma(rest, g - momentum[i], momentum[i]);
        momentum[i] = next;
        put_message(nesterov ? std::fma(rest, g - next, next) : next, to[i]);
      }
    });
  });
}

at::Tensor orthogonalized(const at::Tensor& u, std::span<const optimizer::NewtonSchulzStep> steps, const Team& team) {
  invariant(u.dim() == 2 && u.is_contiguous(), "a matrix is orthogonalized as a whole");
  const bool tall = u.size(0) > u.size(1), rounds = u.scalar_type() == at::kBFloat16;
  const at::Tensor x = (tall ? u.t() : u).div(std::max(norm_of(u, team), least_norm));
  const at::Tensor found = rounds ? newton_schulz_bf16(x, steps) : newton_schulz_fp32(x.contiguous(), steps, team);
  return (tall ? found.t() : found).contiguous();
}

void for_matrices(const Team& team, DType type, std::int64_t n, const std::function<void(std::int64_t)>& run) {
  if (type == DType::bf16) return parallel(team, n, run);
  for (std::int64_t i = 0; i < n; ++i) run(i);
}

void apply_matrices(const MuonStep& step, std::span<const MatrixRange> ranges, const at::Tensor& messages,
                    const MuonMasters& masters, const Team& team) {
  const bool split = !masters.remainder.empty();
  with_messages(messages, [&]<class Message>(const Message* const all) {
    for_tiles_of(ranges, team, [=](const MatrixRange& range, std::int64_t begin, std::int64_t end) {
      const Message* const x = all + range.place;
      const auto decay = static_cast<float>(step.lr * range.weight_decay),
                 size = static_cast<float>(step.lr * range.scale);
      const auto updated_by = [=](float master, std::int64_t i) {
        return std::fma(-size, widen(x[i]), std::fma(-decay, master, master));
      };
      if (split) {
        std::uint16_t* const compute = &masters.compute[static_cast<std::size_t>(range.offset)].x;
        std::int16_t* const remainder = masters.remainder.data() + range.offset;
        for (std::int64_t i = begin; i < end; ++i) {
          const float master = updated_by(split::joined(compute[i], remainder[i]), i);
          compute[i] = split::gathered_bits(master);
          remainder[i] = split::remainder_bits(master);
        }
        return;
      }
      float* const master = masters.master.data() + range.offset;
      for (std::int64_t i = begin; i < end; ++i) master[i] = updated_by(master[i], i);
      if (masters.compute.empty()) return;
      std::uint16_t* const compute = &masters.compute[static_cast<std::size_t>(range.offset)].x;
      for (std::int64_t i = begin; i < end; ++i) compute[i] = to_bf16_bits(master[i]);
    });
  });
}

}  // namespace trireme::optim

// SPDX-License-Identifier: Apache-2.0
// Muon's parts against torch.optim.Muon's operations, and in any division of the work.
#include "trireme/optim/muon.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "trireme/store/masters.hpp"

namespace trireme::optim::muon_test {
namespace {

const auto jordan = optimizer::newton_schulz_steps(optimizer::NewtonSchulz::jordan);
const std::vector<std::pair<std::int64_t, std::int64_t>> shapes{{64, 64}, {48, 200}, {200, 48},
                                                                {7, 130}, {33, 1},   {1, 9}};

std::span<float> span_of(const at::Tensor& t) {
  return {t.mutable_data_ptr<float>(), static_cast<std::size_t>(t.numel())};
}

at::Tensor matrix(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  return at::randn({rows, columns}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

/// torch.optim.Muon's _zeropower_via_newtonschulz, without the cast to bf16 if `u` is fp32.
at::Tensor torch_muon(const at::Tensor& u) {
  at::Tensor x = u.size(0) > u.size(1) ? u.t() : u;
  x = x.div(x.norm().clamp_min(1e-7));
  for (const auto& [a, b, c] : jordan) {
    const at::Tensor gram = at::mm(x, x.t());
    const at::Tensor update = at::addmm(gram, gram, gram, b, c);
    x = at::addmm(x, update, x, a);
  }
  return (u.size(0) > u.size(1) ? x.t() : x).contiguous();
}

TEST(Muon, HasTheBitsOfTorchInBf16) {
  int equal = 0, all = 0;
  for (const auto& [rows, columns] : shapes)
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const at::Tensor u = matrix(rows, columns, seed).to(at::kBFloat16);
      ++all;
      equal += at::equal(orthogonalized(u, jordan), torch_muon(u)) ? 1 : 0;
    }
  EXPECT_EQ(equal, all);
}

TEST(Muon, IsNearTorchInFp32) {
  for (const auto& [rows, columns] : shapes) {
    const at::Tensor u = matrix(rows, columns, 3);
    const at::Tensor x = orthogonalized(u, jordan), expected = torch_muon(u.to(at::kDouble));
    // The iterations amplify rounding of small directions up to 485 times.
    EXPECT_LE((x.to(at::kDouble) - expected).abs().max().item<double>(), 485 * 1.2e-7) << rows << "x" << columns;
  }
}

TEST(Muon, SingularValuesAreNearOne) {
  for (const auto set : {optimizer::NewtonSchulz::jordan, optimizer::NewtonSchulz::polar_express})
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = orthogonalized(matrix(40, 200, 1).to(type), optimizer::newton_schulz_steps(set));
      const at::Tensor values = at::linalg_svdvals(x.to(at::kFloat));
      EXPECT_GT(values.min().item<float>(), 0.6F);
      EXPECT_LT(values.max().item<float>(), 1.4F);
    }
}

TEST(Muon, AZeroGradientGivesZero) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    EXPECT_EQ(orthogonalized(at::zeros({8, 12}, type), jordan).abs().max().item<float>(), 0);
}

TEST(Muon, HasTheSameBitsOnAnyNumberOfThreads) {
  const at::Tensor u = matrix(300, 520, 9);
  const Team one(1), three(3);
  EXPECT_TRUE(at::equal(orthogonalized(u, jordan, one), orthogonalized(u, jordan, three)));
}

/// All elements of a shard of `elements` as ranges of unequal lengths.
std::vector<MatrixRange> ranges_of(std::int64_t elements, std::int64_t piece) {
  std::vector<MatrixRange> ranges;
  for (std::int64_t at = 0; at < elements; at += piece)
    ranges.push_back(
        {.offset = at, .place = at, .elements = std::min(piece, elements - at), .scale = 0.5, .weight_decay = 0.1});
  return ranges;
}

TEST(Muon, MomentumIsTorchsAndDoesNotDependOnPieces) {
  constexpr std::int64_t elements = 70'003;
  for (const bool nesterov : {true, false}) {
    const MuonStep step{.lr = 1e-2, .momentum = 0.9, .nesterov = nesterov, .gradient_factor = 0.5};
    const at::Tensor gradient = matrix(1, elements, 1), before = matrix(1, elements, 2);
    std::vector<at::Tensor> messages, momenta;
    for (const std::int64_t piece : {elements, std::int64_t{1009}}) {
      momenta.push_back(before.clone());
      messages.push_back(at::zeros({elements}, at::kFloat));
      prepare_matrices(step, ranges_of(elements, piece), span_of(gradient), span_of(momenta.back()), messages.back());
    }
    EXPECT_TRUE(at::equal(messages[0], messages[1]));
    EXPECT_TRUE(at::equal(momenta[0], momenta[1]));
    const at::Tensor g = (gradient * 0.5).to(at::kDouble);
    const at::Tensor m = before.to(at::kDouble).lerp(g, 0.1), u = nesterov ? g.lerp(m, 0.9) : m;
    EXPECT_LE((momenta[0].to(at::kDouble) - m).abs().max().item<double>(), 1e-6);
    EXPECT_LE((messages[0].to(at::kDouble) - u[0]).abs().max().item<double>(), 1e-6);
  }
}

TEST(Muon, UpdatesSplitMastersAsFp32Ones) {
  constexpr std::int64_t elements = 4'097;
  const MuonStep step{.lr = 1e-2};
  const at::Tensor x = matrix(1, elements, 4).view({elements});
  at::Tensor whole = matrix(1, elements, 5).view({elements});
  const at::Tensor before = whole.clone(), gathered = at::zeros({elements}, at::kBFloat16),
                   rest = at::zeros({elements}, at::kBFloat16);
  const std::span halves(gathered.mutable_data_ptr<c10::BFloat16>(), static_cast<std::size_t>(elements));
  store::split_masters(span_of(whole), halves, store::words(rest));
  apply_matrices(step, ranges_of(elements, 1000), x, {.master = span_of(whole), .compute = {}, .remainder = {}});
  apply_matrices(step, ranges_of(elements, 1000), x,
                 {.master = {}, .compute = halves, .remainder = store::words(rest)});
  std::vector<float> joined(static_cast<std::size_t>(elements));
  store::join_masters(halves, store::words(rest), joined);
  for (std::size_t i = 0; i < joined.size(); ++i) {
    ASSERT_EQ(joined[i], span_of(whole)[i]);
    ASSERT_NEAR(joined[i], span_of(before)[i] * (1 - 1e-3) - 5e-3 * span_of(x)[i], 1e-6);
  }
}

}  // namespace
}  // namespace trireme::optim::muon_test

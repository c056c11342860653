// SPDX-License-Identifier: Apache-2.0
#include "trireme/optimizer/owners.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace trireme::optimizer::owners_test {
namespace {

config::Model model_config(const std::string& architecture) {
  config::Model model{.architecture = architecture, .vocab_size = 96, .hidden_size = 64, .layers = 3, .heads = 4};
  model.intermediate_size = 96;
  if (architecture == "llama") model.kv_heads = 2;
  if (architecture == "gpt2") model.positions = 32;
  if (architecture == "qwen3_moe") {
    model.kv_heads = 4;
    model.experts = 4;
    model.experts_per_token = 2;
    model.expert_size = 32;
  }
  return model;
}

OwnerOptions with_window(std::int64_t bytes) { return {.window = Bytes{bytes}}; }

model::Model part_of(const std::string& architecture, int tensor, int rank, int experts = 1) {
  return model::build(model_config(architecture),
                      {.rank = rank, .ranks = tensor, .experts = {.rank = 0, .ranks = experts}});
}

struct Case {
  std::string architecture;
  int shards, tensor, experts = 1;
};
const std::vector<Case> cases{{"llama", 1, 1},        {"llama", 3, 1},     {"llama", 2, 2},
                              {"llama", 1, 4},        {"gpt2", 2, 2},      {"qwen3_moe", 2, 1},
                              {"qwen3_moe", 4, 1, 2}, {"qwen3_moe", 2, 2}, {"qwen3_moe", 2, 2, 4}};

TEST(Muon, TakesTheMatricesOfLayersAndLeavesTheRestToAdamW) {
  for (const char* architecture : {"llama", "gpt2", "qwen3_moe"}) {
    const model::Model model = part_of(architecture, 1, 0);
    for (const model::ParameterBlock& block : model.parameter_blocks)
      for (const model::Parameter& p : block.parameters) {
        const bool of_layers = p.name.find("layers.") != std::string::npos || p.name.starts_with("h.") ||
                               p.name.find(".h.") != std::string::npos;
        EXPECT_EQ(takes_muon(p, {}), of_layers && p.shape.size() == 2) << p.name;
        const std::vector<std::string> globs{"*"};
        EXPECT_FALSE(takes_muon(p, globs)) << "a glob takes it out";
      }
  }
}

TEST(Muon, ScalesAreThoseOfMoonlightJordanAndTheSpectralNorm) {
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::moonlight, 100, 400), 4.0);
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::moonlight, 400, 100), 4.0);
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::jordan, 400, 100), 2.0);
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::jordan, 100, 400), 1.0);
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::spectral, 100, 400), 0.5);
}

TEST(Muon, IterationsBringSingularValuesNearOne) {
  for (const auto set : {NewtonSchulz::jordan, NewtonSchulz::polar_express})
    for (double start = 0.02; start <= 1; start *= 1.1) {
      double x = start;
      for (const auto& [a, b, c] : newton_schulz_steps(set)) x = a * x + b * x * x * x + c * x * x * x * x * x;
      EXPECT_NEAR(x, 1, 0.35) << start;
    }
}

TEST(OwnerPlan, SplitsJoinedQueriesKeysAndValues) {
  const model::Model model = part_of("gpt2", 1, 0);
  const shard::Layout layout(model, 1);
  const OwnerPlan owners(model, layout, {});
  std::multiset<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const MatrixWindow& window : owners.windows())
    for (const Matrix& matrix : window.matrices) shapes.emplace(matrix.rows, matrix.columns);
  EXPECT_EQ(shapes.count({64, 64}), 4 * 3) << "q, k, v and o of three layers";
}

TEST(OwnerPlan, IsTheSameForEveryTensorRank) {
  for (const Case& c : cases) {
    const auto windows_of = [&](int rank) {
      const model::Model model = part_of(c.architecture, c.tensor, rank, c.experts);
      const shard::Layout layout(model, c.shards);
      const OwnerPlan owners(model, layout, {});
      std::vector<Matrix> matrices;
      for (const MatrixWindow& window : owners.windows())
        matrices.insert(matrices.end(), window.matrices.begin(), window.matrices.end());
      return matrices;
    };
    for (int rank = 1; rank < c.tensor; ++rank) EXPECT_EQ(windows_of(rank), windows_of(0)) << c.architecture;
  }
}

TEST(OwnerPlan, MessagesHoldEveryElementAndAreTheSameAtBothEnds) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.architecture + std::to_string(c.shards) + "x" + std::to_string(c.tensor));
    const model::Model model = part_of(c.architecture, c.tensor, 0, c.experts);
    const shard::Layout layout(model, c.shards);
    const OwnerOptions options = with_window(16 << 10);
    const OwnerPlan owners(model, layout, options);
    ASSERT_GT(owners.windows().size(), 0U);
    for (int w = 0; w < static_cast<int>(owners.windows().size()); ++w) {
      const MatrixWindow& window = owners.windows()[static_cast<std::size_t>(w)];
      std::vector<std::vector<char>> seen;
      for (const Matrix& matrix : window.matrices)
        seen.emplace_back(static_cast<std::size_t>(matrix.elements()), char{0});
      for (int owner = 0; owner < owners.ranks(); ++owner) {
        const auto by_rank = owners.owned(w, owner);
        std::int64_t place = 0;
        for (int rank = 0; rank < owners.ranks(); ++rank) {
          std::vector<MatrixPiece> sent;
          for (MatrixPiece piece : owners.pieces(w, rank))
            if (window.matrices[static_cast<std::size_t>(piece.matrix)].owner == owner) sent.push_back(piece);
          const auto& received = by_rank[static_cast<std::size_t>(rank)];
          ASSERT_EQ(sent.size(), received.size());
          for (std::size_t i = 0; i < sent.size(); ++i) {
            EXPECT_EQ(sent[i].hyperslab, received[i].hyperslab);
            EXPECT_EQ(sent[i].place - sent[0].place, received[i].place - received[0].place);
            EXPECT_EQ(received[i].place, place) << "end to end, by rank";
            place += received[i].hyperslab.size();
            const shard::Hyperslab& of = received[i].hyperslab;
            for (std::int64_t run = 0; run < of.count; ++run)
              for (std::int64_t j = 0; j < of.length; ++j)
                seen[static_cast<std::size_t>(received[i].matrix)]
                    [static_cast<std::size_t>(of.first + run * of.stride + j)] = 1;
          }
        }
      }
      OwnerPlan::Buffers sent;
      for (int rank = 0; rank < owners.ranks(); ++rank) {
        const OwnerPlan::Buffers of_rank = owners.sent(w, rank);
        sent = {.pieces = sent.pieces + of_rank.pieces, .owned = sent.owned + of_rank.owned};
        EXPECT_LE(of_rank.pieces, owners.buffers(rank)[static_cast<std::size_t>(w % matrix_slots)].pieces);
      }
      EXPECT_EQ(sent.pieces, sent.owned) << "as many elements come back";
      for (const std::vector<char>& matrix : seen) EXPECT_EQ(std::ranges::count(matrix, 0), 0) << "all elements arrive";
    }
  }
}

TEST(OwnerPlan, GivesEachRankWorkWithinOneMatrix) {
  const model::Model model = part_of("llama", 1, 0);
  const shard::Layout layout(model, 4);
  const OwnerPlan owners(model, layout, {});
  const std::vector<double> flops = owners.flops();
  double largest = 0;
  for (const MatrixWindow& window : owners.windows())
    for (const Matrix& matrix : window.matrices) largest = std::max(largest, newton_schulz_flops(matrix));
  EXPECT_LE(std::ranges::max(flops) - std::ranges::min(flops), largest);
}

TEST(OwnerPlan, WindowsHaveWholeBlocksOfTheGivenBytes) {
  const model::Model model = part_of("llama", 1, 0);
  const shard::Layout layout(model, 2);
  EXPECT_EQ(OwnerPlan(model, layout, {}).windows().size(), 1U);
  const OwnerPlan owners(model, layout, with_window(1));
  ASSERT_EQ(owners.windows().size(), 3U) << "a block each, whatever its size";
  for (const MatrixWindow& window : owners.windows()) EXPECT_EQ(window.first, window.last);
  EXPECT_EQ(owners.buffers(0).size(), 2U) << "windows take two buffers in turn";
}

}  // namespace
}  // namespace trireme::optimizer::owners_test

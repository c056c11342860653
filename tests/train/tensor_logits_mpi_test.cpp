// SPDX-License-Identifier: Apache-2.0
//
// The logits themselves, at every position: those of the plain program to 1e-5 when the ranks share each layer and the
// vocabulary, which divides by nothing.
//
// ranks: 1 2 4
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "support/jobs.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t rows = 4, positions = 12;

class TensorLogits : public testing::Test {
 protected:
  /// The largest difference at any position, and the largest logit.
  struct Found {
    double off = 0, largest = 0;
  };
  [[nodiscard]] Found compare(config::RunConfig config, bool sequence_parallel) const {
    config.model.heads = 8;
    config.mesh = {.replicate = 1, .shard = 1, .tensor = world_.size()};
    if (world_.size() > 1) config.mesh.sequence_parallel = sequence_parallel;
    config.batch = {.global = rows, .micro = rows};
    config.data.seq_len = positions;
    Job job(config, world_, {.trains = false});
    job.store().fill(test::lively_values(7));
    at::Tensor tokens = at::empty({rows, positions}, at::kLong);
    for (std::int64_t i = 0; i < tokens.numel(); ++i) tokens.mutable_data_ptr<std::int64_t>()[i] = (37 * i + 11) % 257;
    const at::Tensor expected =
        test::plain_logits(config.model, test::whole_parameters(config, test::lively_values(7)), tokens);
    Found found{.largest = expected.abs().max().item<double>()};
    for (std::int64_t length = 1; length <= positions; ++length) {
      const at::Tensor logits = job.infer(tokens.slice(1, 0, length).to(at::kInt).contiguous());
      const at::Tensor off = (logits - expected.select(1, length - 1)).abs().max();
      found.off = std::max(found.off, off.item<double>());
    }
    return found;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

TEST_F(TensorLogits, AreThePlainPrograms) {
  config::RunConfig tied = test::odd_run(files_, 1);
  tied.model.tie_embeddings = true;
  config::RunConfig untied = test::gpt2_run(files_, 1);
  untied.model.tie_embeddings = false;
  for (const config::RunConfig& config : {test::odd_run(files_, 1), tied, test::gpt2_run(files_, 1), untied})
    for (const bool sequence_parallel : {true, false}) {
      const Found found = compare(config, sequence_parallel);
      EXPECT_LT(found.off, 1e-5) << config.model.architecture;
      EXPECT_GT(found.largest, 0.5) << config.model.architecture << ": nothing to compare";
    }
}

TEST_F(TensorLogits, OfADocumentAreThoseItHasAlone) {
  constexpr std::int64_t end = 3, before = 9;
  config::RunConfig config = test::odd_run(files_, 1);
  config.model.heads = 8;
  config.mesh = {.replicate = 1, .shard = 1, .tensor = world_.size()};
  config.batch = {.global = rows, .micro = rows};
  config.data.document_end = end;
  const auto logits = [&](bool mask, std::int64_t from) {
    config.data.document_mask = mask;
    at::Tensor tokens = at::empty({rows, before + positions}, at::kInt);
    for (std::int64_t i = 0; i < tokens.numel(); ++i)
      tokens.mutable_data_ptr<std::int32_t>()[i] = static_cast<std::int32_t>(4 + (37 * i + 11) % 250);
    for (const std::int64_t last : {4L, before - 1}) tokens.select(1, last).fill_(end);
    config.data.seq_len = tokens.size(1);
    Job job(config, world_, {.trains = false});
    job.store().fill(test::lively_values(7));
    return job.infer(tokens.slice(1, from).contiguous());
  };
  const at::Tensor alone = logits(false, before);
  EXPECT_LT((logits(true, 0) - alone).abs().max().item<double>(), 1e-5);
  EXPECT_GT((logits(false, 0) - alone).abs().max().item<double>(), 1e-3) << "other documents change nothing";
}

}  // namespace
}  // namespace trireme::train

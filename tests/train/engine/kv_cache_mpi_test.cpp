// SPDX-License-Identifier: Apache-2.0
//
// Generation with a key/value cache is generation without one: of every family, sharded and tensor-parallel.
//
// ranks: 1 2 4
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/random_runs.hpp"
#include "trireme/train/engine/generate.hpp"

namespace trireme::train::kv_cache_mpi_test {
namespace {

constexpr std::int64_t rows = 2, seen_at_most = 11, answer = 9;
/// Relative to the largest logit. Products of one row and of many round differently, and the random models have large
/// logits: up to 1.0e-5 for Ministral, 5e-6 for most others. A Gemma 2 was 5e-5 off: fp32 alone moved the plain
/// program's logits by 8e-5, while the cache was 3e-6 from fp64. A key in the wrong place is off by far more than 1e-3.
constexpr double tolerance = 3e-5;

class KvCache : public testing::Test {
 protected:
  /// A random model of `family` on a random mesh, for sequences of up to `seq_len` tokens.
  [[nodiscard]] config::RunConfig draw(test::Draw& random, const model::Architecture& family,
                                       std::int64_t seq_len) const {
    config::RunConfig config = test::draw_run(random, nullptr, family, files_, world_.size(), 1);
    config.data.seq_len = seq_len;
    config.mesh.sequence_parallel.reset();
    if (config.mesh.tensor > 1) config.mesh.sequence_parallel = false;  // a text grows by one token
    return config;
  }

  [[nodiscard]] std::unique_ptr<Job> job_of(const config::RunConfig& config) const {
    auto job = std::make_unique<Job>(config, world_, JobOptions{.trains = false});
    job->store().fill(test::lively_values(7));
    return job;
  }

  /// Tokens of a few documents, where the run has documents.
  [[nodiscard]] static at::Tensor tokens_of(const config::RunConfig& config, std::int64_t length) {
    at::Tensor tokens = at::empty({rows, length}, at::kInt);
    auto* const ids = tokens.mutable_data_ptr<std::int32_t>();
    for (std::int64_t i = 0; i < tokens.numel(); ++i) {
      ids[i] = static_cast<std::int32_t>((37 * i + 11) % config.model.vocab_size);
      if (config.data.document_mask && i % 7 == 4) ids[i] = static_cast<std::int32_t>(*config.data.document_end);
    }
    return tokens;
  }

  /// Effect of fp32 rounding on the plain program's last logits: [rows, vocab] of tokens [rows, T].
  [[nodiscard]] static double rounding(const config::RunConfig& config, const at::Tensor& tokens) {
    test::Parameters parameters = test::whole_parameters(config, test::lively_values(7));
    const at::Tensor seen = tokens.to(at::kLong);
    std::optional<std::int64_t> end;
    if (config.data.document_mask) end = config.data.document_end;
    const auto last = [&] {
      return test::plain_logits(config.model, parameters, seen, test::plain_unseen(seen, end))
          .select(1, -1)
          .to(at::kDouble);
    };
    const at::Tensor fp32 = last();
    for (auto& [name, value] : parameters) value = value.to(at::kDouble);
    return (last() - fp32).abs().max().item<double>();
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

TEST_F(KvCache, LeavesTheLogitsOfEveryFamilyAsTheyAre) {
  test::Draw random(static_cast<unsigned>(100 + world_.size()));
  double worst = 0;
  for (int twice = 0; twice < 2; ++twice)
    for (const model::Architecture& family : model::architectures()) {
      const config::RunConfig config = draw(random, family, seen_at_most);
      const std::unique_ptr<Job> job = job_of(config);
      for (const std::int64_t prompt : {5, 1, 13}) {  // one after another in the same cache
        const at::Tensor tokens = tokens_of(config, prompt + answer);
        TextWindow window(job->model().sizes, config.data.seq_len, true);
        for (std::int64_t length = prompt; length < prompt + answer; ++length) {
          const ForwardRange range = window.next(length);
          const at::Tensor seen = tokens.slice(1, range.begin, length).contiguous();
          const at::Tensor expected = job->infer(seen), found = job->infer_cached(seen, range.past);
          const double largest = std::max(1.0, expected.abs().max().item<double>());
          const double off = (found - expected).abs().max().item<double>() / largest;
          ASSERT_LE(off, off <= tolerance ? tolerance : std::max(tolerance, rounding(config, seen) / largest))
              << "prompt " << prompt << ", length " << length << "\n"
              << config::print_run_file(config);
          worst = std::max(worst, off);
        }
      }
    }
  if (world_.rank() == 0) std::printf("largest difference of logits: %.1e\n", worst);
}

TEST_F(KvCache, LeavesTheTokensAsTheyAreAndComputesOnePositionForEach) {
  for (const char* family : {"llama", "youtu", "deepseek_v3"}) {
    SCOPED_TRACE(family);
    test::Draw random(static_cast<unsigned>(200 + world_.size()));
    config::RunConfig config = draw(random, model::architecture(family), 48);
    config.model.rope_scaling.reset();  // a dynamic one turns every key again at each token
    const std::unique_ptr<Job> job = job_of(config);
    for (const std::vector<std::int32_t>& prompt : {std::vector<std::int32_t>{3, 1, 4, 1, 5}, {9, 2}}) {
      const auto continued = [&](TextLogits& model) {
        std::vector<std::int32_t> text;
        generate(model, prompt, 40, -1, {.temperature = 1}, [&](std::int32_t token) {
          text.push_back(token);
          return true;
        });
        return text;
      };
      TextLogits cached(*job, true), slow(*job, false);
      EXPECT_EQ(continued(cached), continued(slow));
      const auto length = static_cast<std::int64_t>(prompt.size());
      EXPECT_EQ(cached.positions(), length + 39);
      EXPECT_EQ(slow.positions(), 40 * length + 39 * 40 / 2);
    }
  }
}

}  // namespace
}  // namespace trireme::train::kv_cache_mpi_test

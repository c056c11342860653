// SPDX-License-Identifier: Apache-2.0
//
// Log-likelihoods of choices do not depend on the mesh: random runs of all families against one rank alone.
//
// ranks: 1 2 4
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/random_runs.hpp"
#include "train/choices.hpp"
#include "trireme/config/load.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::train::choices_mpi_test {
namespace {

/// Texts of 2 to `longest` + 1 tokens.
std::vector<Choice> draw_choices(test::Draw& draw, std::int64_t longest, std::int64_t vocab_size) {
  std::vector<Choice> choices(static_cast<std::size_t>(draw.between(3, 9)));
  for (Choice& choice : choices) {
    for (std::int64_t length = draw.between(2, longest + 1); length > 0; --length)
      choice.ids.push_back(static_cast<std::int32_t>(draw.between(0, vocab_size - 1)));
    choice.context = static_cast<std::size_t>(draw.between(0, std::ssize(choice.ids) - 1));
  }
  return choices;
}

std::vector<double> scores(const config::RunConfig& config, const mpi::Communicator& world,
                           const std::vector<Choice>& choices) {
  Job job(config, world, JobOptions{.poison = true});
  job.store().fill(test::lively_values(7));
  return score_choices(job, choices, "choices", [](std::size_t) { return true; }).value();
}

TEST(Choices, HaveTheLogLikelihoodsOfOneRankOnEveryMesh) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const mpi::Communicator alone = world.split(world.rank(), 0);
  const test::TokenFiles files(world, 257);
  test::Draw draw(static_cast<unsigned>(300 + world.size())), axes(static_cast<unsigned>(400 + world.size()));
  int divided = 0;
  for (int twice = 0; twice < 2; ++twice)
    for (const model::Architecture& family : model::architectures()) {
      config::RunConfig config = test::draw_run(draw, &axes, family, files, world.size(), 1);
      // Refused (preflight): RoPE that depends on the length of a row.
      if (config.model.rope_scaling && config.model.rope_scaling->type == config::RopeType::dynamic)
        config.model.rope_scaling.reset();
      const std::vector<Choice> choices = draw_choices(draw, config.data.seq_len, config.model.vocab_size);
      config::RunConfig plain = config;
      plain.mesh = {};
      plain.context = {};
      plain.pipeline = {};
      plain.sync = {};
      plain.batch.micro = 1;
      const std::vector<double> found = scores(config, world, choices), expected = scores(plain, alone, choices);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], 1e-4 * std::max(1.0, std::abs(expected[i])))
            << "choice " << i << "\n"
            << config::print_run_file(config);
      const config::Mesh& mesh = config.mesh;
      divided += mesh.tensor > 1 || mesh.pipeline > 1 || mesh.context > 1 || mesh.expert > 1 ? 1 : 0;
    }
  if (world.size() > 1) {
    EXPECT_GT(divided, 0);
  }
}

}  // namespace
}  // namespace trireme::train::choices_mpi_test

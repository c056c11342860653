// SPDX-License-Identifier: Apache-2.0
//
// 8-bit products in random models, meshes and policies, with all else in fp32 and without updates, against the plain
// program that rounds the same operands by table. TRIREME_TEST_SEED draws others.
//
// ranks: 2 4
//
// labels: slow
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/jobs.hpp"
#include "support/random_runs.hpp"
#include "train/fp8/steps_apart.hpp"
#include "trireme/config/load.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::train::random_fp8_mpi_test {
namespace {

constexpr int draws = 3, steps = 8;

/// Sizes that the blocks of the recipe divide, on every tensor rank, too.
void fit_fp8(test::Draw& draw, const model::Architecture& family, config::RunConfig& config) {
  config::Model& model = config.model;
  config.precision.fp8 = draw.of({Fp8::rowwise, Fp8::rowwise, Fp8::mx});
  config.precision.reduce = config::Reduce::fp32;
  config.optimizer.lr = 0;
  const std::int64_t unit = fp8_multiple(config.precision.fp8);
  const auto up = [](std::int64_t size, std::int64_t multiple) { return (size + multiple - 1) / multiple * multiple; };
  const bool spans = family.heads_span_hidden || family.name == "gpt2";
  if (family.name != "gpt2") model.head_dim = unit;
  if (family.decoder.latent) {
    if (model.q_rank > 0) model.q_rank = unit;
    model.kv_rank = model.nope_dim = model.rope_dim = model.value_dim = unit;
    model.head_dim = 2 * unit;
  }
  model.hidden_size = spans ? model.heads * unit : up(model.hidden_size, unit);
  model.intermediate_size = up(model.intermediate_size, unit * config.mesh.tensor);
  if (model.rope_scaling && model.rope_scaling->type == config::RopeType::longrope) {
    const auto pairs = static_cast<std::size_t>(static_cast<double>(unit) * model.partial_rotary_factor / 2);
    model.rope_scaling->short_factor.assign(pairs, 1.25);
    model.rope_scaling->long_factor.assign(pairs, 3.5);
  }
  if (draw.coin())
    config.precision.fp8_skip = family.name == "gpt2" ? std::vector<std::string>{"*.h.0.*"}
                                                      : std::vector<std::string>{"*.layers.0.*", "*.down_proj.*"};
  if (model.layers == 1) config.precision.fp8_skip.clear();
}

/// Whether no operand is rounded the other way in some steps if the weights change by a rounding: then a mesh has such
/// steps, too.
bool well_conditioned(const config::RunConfig& config, const test::Curve& expected, const mpi::Communicator& world) {
  constexpr std::size_t enough = 3;
  const auto found = fp8::steps_apart(test::plain_curve(config, world, {}, at::kFloat, 1.2e-7), expected);
  return found[enough - 1].loss <= fp8::near_step.loss && found[enough - 1].grad_norm <= fp8::near_step.grad_norm;
}

TEST(RandomFp8, FollowsThePlainProgramThatRoundsByTable) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  std::vector<const model::Architecture*> families;
  for (const model::Architecture& family : model::architectures())
    if (!family.decoder.experts) families.push_back(&family);
  const char* seed = std::getenv("TRIREME_TEST_SEED");
  const unsigned long number = (seed != nullptr ? std::strtoul(seed, nullptr, 10) : 1) * 100 + world.size();
  test::Draw draw(number), axes_draw(number + 50);
  double worst = 0;
  int runs = 0, tried = 0;
  for (; runs < draws && tried < 8 * draws; ++tried) {
    const model::Architecture& family = *families[(number + static_cast<unsigned long>(tried)) % families.size()];
    config::RunConfig config = test::draw_run(draw, &axes_draw, family, files, world.size(), steps);
    fit_fp8(draw, family, config);
    const JobOptions options = {
        .lane_threads = draw.coin(),
        .transport = draw.of({comm::TransportChoice::mpi, comm::TransportChoice::shared_memory}),
        .poison = true};
    const test::Curve expected = test::plain_curve(config, world);
    if (!well_conditioned(config, expected, world)) continue;
    ++runs;
    const auto found = fp8::steps_apart(test::train_job(config, world, options).curve, expected);
    EXPECT_LE(found.front().loss, fp8::near_step.loss) << config::print_run_file(config);
    EXPECT_LE(found.front().grad_norm, fp8::near_step.grad_norm) << config::print_run_file(config);
    EXPECT_LE(found.back().loss, 1e-2) << config::print_run_file(config);
    worst = std::max(worst, found.front().grad_norm);
  }
  EXPECT_EQ(runs, draws) << "too few problems in which rounding decides nothing";
  if (world.rank() == 0)
    std::printf("largest deviation of the nearest norms from the plain program: %.1e; %d of %d draws\n", worst, runs,
                tried);
}

}  // namespace
}  // namespace trireme::train::random_fp8_mpi_test

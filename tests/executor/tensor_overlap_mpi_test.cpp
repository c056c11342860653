// SPDX-License-Identifier: Apache-2.0
//
// Overlap of exchanges on the tensor axis with independent compute: weight gradients are computed while input gradients
// are summed, and a branch's input is gathered again while its input's gradient is computed.
//
// ranks: 2
#include <gtest/gtest.h>

#include "meetings.hpp"

namespace trireme::executor {
namespace {

using test::Rendezvous;
using test::Steps;

test::Setup shared_layers(bool sequence_parallel) { return {.sequence_parallel = sequence_parallel}; }

std::string sum_of(const std::string& stage, bool sequence_parallel) {
  return (sequence_parallel ? "scatter_sequence " : "all_reduce_activation ") + stage + " m0 backward";
}

const std::vector<std::string> stages{"b3.mlp", "b3.attention", "b2.mlp", "b1.attention", "b0.mlp", "b0.attention"};

std::vector<Rendezvous> sums_under_weights(const Steps& steps, bool sequence_parallel) {
  std::vector<Rendezvous> meetings;
  for (const std::int64_t step : {0, 1})
    for (const std::string& stage : stages)
      meetings.push_back({steps.find(sum_of(stage, sequence_parallel)), step, steps.find("backward_weight " + stage),
                          step, "the sum of " + stage + "'s input gradient keeps its weights' from starting"});
  return meetings;
}

std::vector<Rendezvous> gathers_under_inputs(const Steps& steps) {
  std::vector<Rendezvous> meetings;
  for (const std::int64_t step : {0, 1})
    for (const std::string& stage : stages)
      meetings.push_back({steps.find("gather_sequence " + stage + " m0 again"), step,
                          steps.find("backward_input " + stage), step,
                          "the second gather of " + stage + "'s input keeps its gradient from starting"});
  return meetings;
}

TEST(TensorOverlap, AnInputsGradientIsSummedUnderTheWeightGradients) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  for (const bool sequence_parallel : {true, false})
    test::expect_meetings(world, 2, shared_layers(sequence_parallel),
                          [&](const Steps& steps) { return sums_under_weights(steps, sequence_parallel); });
}

TEST(TensorOverlap, ABranchsInputIsGatheredAgainUnderItsInputsGradient) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  test::expect_meetings(world, 2, shared_layers(true), gathers_under_inputs);
}

TEST(TensorOverlap, TheTimelineOverASlowLinkShowsBoth) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  for (const bool sequence_parallel : {true, false}) {
    test::Setup setup = shared_layers(sequence_parallel);
    setup.options.record_timeline = true;
    setup.tensor_pace = comm::Pace{.bytes_per_second = 1e9, .latency_seconds = 0.05};
    test::expect_meetings(world, 2, setup, [&](const Steps& steps) {
      std::vector<Rendezvous> meetings = sums_under_weights(steps, sequence_parallel);
      if (sequence_parallel)
        for (Rendezvous& meeting : gathers_under_inputs(steps)) meetings.push_back(std::move(meeting));
      return meetings;
    });
  }
}

}  // namespace
}  // namespace trireme::executor

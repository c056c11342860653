// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/mpi/communicator.hpp"
#include "trireme/planner/time/machine.hpp"

/// `trireme doctor --measure`: a machine file of the ranks that run it, computing on their CPUs.
namespace trireme::cli {

/// Measures products, attention, updates, copies, whole steps of one rank, and collectives between all. The same on
/// every rank; takes up to a minute. Collective over `world`.
[[nodiscard]] planner::Machine measure_machine(const mpi::Communicator& world);

/// Disturbance of a measurement, for the file's `about`: cores that other processes used before it, and how much longer
/// one of equal products took than another. Empty: nothing much.
[[nodiscard]] std::string disturbance_text(double busy_cores, double spread);

/// Seconds of one call of those of `budget_seconds` that were hardly disturbed: nine of ten took longer. On every rank
/// its own.
[[nodiscard]] double typical_seconds(double budget_seconds, const std::function<void()>& call);

/// The mean over the ranks, which measure at the same time, as they compute when they train. Collective over `world`.
[[nodiscard]] double mean_over_ranks(const mpi::Communicator& world, double seconds);

/// Adds peak, products, fp32's factor, attention and both bandwidths of the host. Collective over `world`.
void measure_kernels(planner::Machine& machine, const mpi::Communicator& world);

/// Adds memory_tb_s, layer_ms and step_ms from steps of one rank. Collective over `world`.
void measure_steps(planner::Machine& machine, const mpi::Communicator& world);

/// Adds the links that these ranks have: inside of a node, and between nodes. Collective over `world`.
void measure_links(planner::Machine& machine, const mpi::Communicator& world);

}  // namespace trireme::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/config/load.hpp"
#include "trireme/mesh/mesh.hpp"
#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::train {

/// Model and schedules of one rank of a job.
struct JobSchedules {
  model::Model held;                  ///< with a pipeline, this rank's blocks only
  std::optional<model::Model> whole;  ///< with a pipeline
  std::vector<int> holders;           ///< with a pipeline: the first rank that holds each of its parameter blocks
  schedule::Schedule step, forward;   ///< of training and of evaluation
  std::string text;                   ///< the lists of all ranks: equal on every rank
};

/// Builds and verifies the schedules of a rank, for a GPU or a CPU regardless of device.type; with a pipeline, those of
/// all pipeline ranks together.
[[nodiscard]] JobSchedules job_schedules(const config::RunConfig& run, const config::Resolved& mesh,
                                         const mesh::Coordinates& at, bool on_gpu);

}  // namespace trireme::train

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/planner/validate/published.hpp"

namespace trireme::planner {

/// The machine and the trainer that rows are predicted with.
struct Fleet {
  Machine machine;
  Trainer trainer;
};

/// Predicted tokens/s of one GPU.
[[nodiscard]] double predicted_rate(const PublishedRow& row, const Fleet& fleet);

/// The fleet whose few physical numbers (rates of products, attention, memory; links; host times) predict `rows` best:
/// least log1p((log(predicted / measured) / 0.03)^2), within physical bounds. Never by row.
[[nodiscard]] Fleet fitted(const Fleet& start, const std::vector<PublishedRow>& rows);

/// One or two compute rates from the rows that calibrate: one for all kernels, with three rows or more attention apart.
[[nodiscard]] Fleet calibrated(const Fleet& start, const std::vector<PublishedRow>& rows);

}  // namespace trireme::planner

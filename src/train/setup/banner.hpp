// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "train/setup/environment.hpp"
#include "trireme/data/packing.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// Lines before the first step: the batch job, model size, mesh, batch, policy, bytes per rank by
/// category, device, threads, data, saves. samples, packing: of all training files.
[[nodiscard]] std::string banner(const Job& job, const Environment& environment, const kernels::GemmChoice& gemm,
                                 std::int64_t samples, const std::optional<data::PackingCounts>& packing);

}  // namespace trireme::train

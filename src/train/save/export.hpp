// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/huggingface/huggingface.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// Writes the job's weights as a Hugging Face directory, in the compute dtype. Collective over the job, lanes at rest;
/// rank 0 writes, one block of parameters in its memory at a time. Throws CheckpointError or WriteError on rank 0.
void export_huggingface(Job& job, const std::string& directory, bool overwrite);

/// How an export of this run's weights is written, and what it says of generation: data.seq_len, where it stops.
[[nodiscard]] huggingface::HfWriteOptions export_options(const config::RunConfig& config);

}  // namespace trireme::train

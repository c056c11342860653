// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/huggingface/huggingface.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// Writes the job's weights as a Hugging Face directory, in the compute dtype. Collective over the job, lanes idle;
/// rank 0 writes, one block of parameters in its memory at a time, by its `options`. Throws on rank 0, when all have
/// taken part.
void export_huggingface(Job& job, const std::string& directory, const huggingface::HfWriteOptions& options);

/// Removes partial exports of checkpoints by earlier jobs, whose names no later one uses. Call it under
/// the lock of `output`.
void remove_unfinished_exports(const std::string& output);

/// Settings of an export of this run's weights if they do not come from `model.from`: data.seq_len, the tokenizer's
/// special tokens.
[[nodiscard]] huggingface::HfWriteOptions export_options(const config::RunConfig& config);
/// The same for a run that began from other weights, which `given` describes: their special tokens stay, new ends of a
/// text are added, max_position_embeddings is the larger one.
[[nodiscard]] huggingface::HfWriteOptions with_given(huggingface::HfWriteOptions options,
                                                     const huggingface::HfWriteOptions& given);
/// `export_options` with the tokenizer's files. To be called when a run starts: they may change, or vanish, while it
/// trains.
[[nodiscard]] huggingface::HfWriteOptions export_with_tokenizer(const config::RunConfig& config);

}  // namespace trireme::train

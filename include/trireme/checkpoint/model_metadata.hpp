// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/checkpoint/manifest.hpp"
#include "trireme/huggingface/huggingface.hpp"

/// A manifest's texts as the values that they were made of.
namespace trireme::checkpoint {

/// The [model] that `model_metadata` described. name: the file, for messages. Throws CheckpointError when a key is
/// missing or no value of its kind.
[[nodiscard]] config::Model model_of(const std::string& name, const Metadata& metadata);
/// The same of a manifest, whose model has no more layers than it has parameters.
[[nodiscard]] config::Model model_of(const std::string& name, const Manifest& manifest);
/// Throws CheckpointError when `model` claims more layers than there are tensors: who builds it allocates by that
/// number.
void require_layers(const std::string& name, const config::Model& model, std::size_t tensors);

/// State::generation from an export's options.
[[nodiscard]] Metadata generation_metadata(const huggingface::HfWriteOptions& options);
/// Restores the result of `generation_metadata` in `options`; absent keys keep their values. Throws CheckpointError.
void read_generation(const std::string& name, const Metadata& metadata, huggingface::HfWriteOptions& options);

}  // namespace trireme::checkpoint

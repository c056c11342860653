// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/checkpoint/huggingface.hpp"
#include "trireme/checkpoint/manifest.hpp"

/// A manifest's texts as the values that they were made of.
namespace trireme::checkpoint {

/// The [model] that `model_facts` described. name: the file, for messages. Throws CheckpointError when a key is missing
/// or no value of its kind.
[[nodiscard]] config::Model model_of(const std::string& name, const Facts& facts);
/// The same of a manifest, whose model has no more layers than it has parameters.
[[nodiscard]] config::Model model_of(const std::string& name, const Manifest& manifest);
/// Throws CheckpointError when `model` claims more layers than there are tensors: who builds it allocates by that
/// number.
void require_layers(const std::string& name, const config::Model& model, std::size_t tensors);

/// State::generation from an export's options.
[[nodiscard]] Facts generation_facts(const HfWriteOptions& options);
/// Puts what `generation_facts` gave into `options`; what is absent stays. Throws CheckpointError.
void read_generation(const std::string& name, const Facts& facts, HfWriteOptions& options);

}  // namespace trireme::checkpoint

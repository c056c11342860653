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

/// State::generation from an export's options.
[[nodiscard]] Facts generation_facts(const HfWriteOptions& options);
/// Puts what `generation_facts` gave into `options`; what is absent stays. Throws CheckpointError.
void read_generation(const std::string& name, const Facts& facts, HfWriteOptions& options);

}  // namespace trireme::checkpoint

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "huggingface/json_object.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface {

/// Reads the settings that differ from layer to layer: the window of attention and the layers that have it, in the keys
/// of `a`. Throws nothing: mistakes are collected.
void read_windows(const JsonObject& config, const model::Architecture& a, config::Model& model);

/// no_rope_layers: 1 for a layer with RoPE, 0 for one without; every n-th layer has none, or all have it.
void read_no_rope_layers(const JsonObject& config, config::Model& model);

/// mlp_only_layers: the first layers, whose MLP is not replaced by experts. decoder_sparse_step: 1.
void read_dense_layers(const JsonObject& config, config::Model& model);

/// mlp_layer_types: "dense" for the first layers; first_k_dense_replace: as many, if it is there.
void read_mlp_types(const JsonObject& config, config::Model& model);

/// Writes these keys.
void write_windows(const model::Architecture& a, const config::Model& given, nlohmann::ordered_json& table);

}  // namespace trireme::huggingface

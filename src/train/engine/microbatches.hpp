// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/config/run_config.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/model/context.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::train {

/// One microbatch of the step on its device: the part of context rank `part` of its sequences. tokens: outlive the
/// microbatch, whose tensors share their memory on CPUs.
[[nodiscard]] nn::Microbatch microbatch_of(const data::MicrobatchTokens& tokens, const config::RunConfig& config,
                                           double loss_scale, at::Device device, const model::ContextPart& part = {});

/// Sets the weights of losses added to the cross-entropy.
void add_losses(const config::RunConfig& config, nn::Microbatch& microbatch);

/// One row of any length with targets, a text whose documents are not distinguished. row: outlives the microbatch.
[[nodiscard]] nn::Microbatch row_of(const data::MicrobatchTokens& row, at::Device device);

/// The row as the first of a whole microbatch, whose other targets do not count. row: at most data.seq_len tokens,
/// which are one document.
[[nodiscard]] data::MicrobatchTokens padded_row(const data::MicrobatchTokens& row, const config::RunConfig& config);

/// The tokens from `past` on of rows of which the ones before are in a key/value cache. tokens: [B, T], int32.
[[nodiscard]] nn::Microbatch added_tokens_of(const at::Tensor& tokens, std::int64_t past,
                                             const config::RunConfig& config, at::Device device);

/// Rows of tokens without targets. tokens: [B, T], int32.
[[nodiscard]] nn::Microbatch prompts_of(const at::Tensor& tokens, const config::RunConfig& config, at::Device device);

}  // namespace trireme::train

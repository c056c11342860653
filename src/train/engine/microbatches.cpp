// SPDX-License-Identifier: Apache-2.0
#include "train/engine/microbatches.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/nn/documents.hpp"

namespace trireme::train {
namespace {

/// int32 tokens as a tensor that shares the vector's memory, which outlives it.
at::Tensor borrowed(const std::vector<std::int32_t>& tokens) {
  return at::from_blob(const_cast<std::int32_t*>(tokens.data()), {static_cast<std::int64_t>(tokens.size())}, at::kInt);
}

/// Tokens where the step computes: on a GPU a copy, on its way there when this returns.
at::Tensor on_device(at::Tensor tokens, at::Device device) {
  if (!device.is_cuda()) return tokens;
  const device::ChargeTo charge(device::Category::data);
  return tokens.pin_memory().to(device, /*non_blocking=*/true);
}

/// Part of a context rank in [B*T] values on the host: [B*T / ranks].
at::Tensor part_of(const at::Tensor& whole, std::int64_t sequences, const model::ContextPart& part) {
  invariant(whole.is_cpu(), "sequences are divided on the host");
  const std::int64_t seq_len = whole.size(0) / sequences, run = part.run(seq_len);
  at::Tensor mine = at::empty({whole.size(0) / part.ranks}, whole.options());
  const auto* from = whole.const_data_ptr<std::int32_t>();
  auto* to = mine.mutable_data_ptr<std::int32_t>();
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence, from += seq_len) {
    to = std::copy_n(from + part.first_run(seq_len), run, to);
    to = std::copy_n(from + part.second_run(seq_len), run, to);
  }
  return mine;
}

/// nn::Microbatch::document_begin with data.document_mask: `begins` of the token files, else computed from
/// data.document_end.
at::Tensor documents(const config::Data& data, const at::Tensor& inputs, std::int64_t seq_len,
                     const std::vector<std::int32_t>& begins = {}) {
  if (!data.document_mask || (begins.empty() && !data.document_end)) return {};
  const device::ChargeTo charge(device::Category::data);
  return begins.empty() ? nn::document_begins(inputs, seq_len, *data.document_end) : borrowed(begins).clone();
}

}  // namespace

nn::Microbatch microbatch_of(const data::MicrobatchTokens& tokens, const config::RunConfig& config, double loss_scale,
                             at::Device device, const model::ContextPart& part) {
  const at::Tensor inputs = borrowed(tokens.inputs);
  if (part.ranks > 1) {
    // Targets are shifted and documents found before the sequences are divided.
    const device::ChargeTo charge(device::Category::data);
    const std::int64_t seq_len = config.data.seq_len;
    at::Tensor begins = documents(config.data, inputs, seq_len, tokens.document_begins);
    if (begins.defined() && part.method == config::ContextMethod::gather)  // else every token is a query here
      begins = part_of(begins, config.batch.micro, part);
    return {.inputs = on_device(part_of(inputs, config.batch.micro, part), device),
            .targets = on_device(part_of(borrowed(tokens.targets), config.batch.micro, part), device),
            .batch = config.batch.micro,
            .seq_len = seq_len / part.ranks,
            .document_begin = begins,
            .loss_scale = loss_scale};
  }
  return {.inputs = on_device(inputs, device),
          .targets = on_device(borrowed(tokens.targets), device),
          .batch = config.batch.micro,
          .seq_len = config.data.seq_len,
          .document_begin = documents(config.data, inputs, config.data.seq_len, tokens.document_begins),
          .loss_scale = loss_scale};
}

void add_losses(const config::RunConfig& config, nn::Microbatch& microbatch) {
  const auto sequences = static_cast<double>(config.batch.global);
  microbatch.z_loss = config.loss.z_loss;
  microbatch.balance_scale = config.loss.balance_loss / sequences;
  microbatch.router_z_scale = config.loss.router_z_loss / (sequences * static_cast<double>(config.data.seq_len));
}

nn::Microbatch row_of(const data::MicrobatchTokens& row, at::Device device) {
  const at::Tensor inputs = borrowed(row.inputs);
  return {.inputs = on_device(inputs, device),
          .targets = on_device(borrowed(row.targets), device),
          .batch = 1,
          .seq_len = inputs.size(0)};
}

data::MicrobatchTokens padded_row(const data::MicrobatchTokens& row, const config::RunConfig& config) {
  const auto tokens = static_cast<std::size_t>(config.batch.micro * config.data.seq_len);
  invariant(row.inputs.size() <= static_cast<std::size_t>(config.data.seq_len), "a row is at most a sequence");
  data::MicrobatchTokens padded = row;
  padded.inputs.resize(tokens, 0);
  padded.targets.resize(tokens, data::ignored_target);
  if (config.data.document_mask) padded.document_begins.assign(tokens, 0);
  return padded;
}

nn::Microbatch prompts_of(const at::Tensor& tokens, const config::RunConfig& config, at::Device device) {
  const at::Tensor inputs = tokens.reshape({-1});
  return {.inputs = on_device(inputs, device),
          .targets = {},
          .batch = tokens.size(0),
          .seq_len = tokens.size(1),
          .document_begin = documents(config.data, inputs, tokens.size(1))};
}

nn::Microbatch added_tokens_of(const at::Tensor& tokens, std::int64_t past, const config::RunConfig& config,
                               at::Device device) {
  nn::Microbatch all = prompts_of(tokens, config, at::kCPU);
  const auto added = [&](const at::Tensor& of_tokens) {
    return of_tokens.view(tokens.sizes()).slice(1, past).contiguous().view({-1});
  };
  all.inputs = on_device(added(all.inputs), device);
  if (all.document_begin.defined()) all.document_begin = added(all.document_begin);
  all.seq_len -= past;
  all.past = past;
  all.longest = config.data.seq_len;
  return all;
}

}  // namespace trireme::train

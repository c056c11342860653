// SPDX-License-Identifier: Apache-2.0
#include "train/setup/device_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/log.hpp"
#include "trireme/kernels/attention_library.hpp"
#include "trireme/mpi/broadcast.hpp"

namespace trireme::train {

void choose_device_kernels(const config::RunConfig& config, const model::Sizes& held, const mpi::Communicator& world) {
  const bool speaks = world.rank() == 0;
  if (config.run.deterministic)
    kernels::set_deterministic();
  else if (speaks)
    log::info(
        "GPU results may differ bitwise between runs; run.deterministic = true makes them reproducible, at some cost "
        "in speed");
  if (config.precision.compute != DType::bf16) return;  // the dense kernels
  if (held.decoder.score_softcap > 0) {
    if (speaks) log::warning("attention library: dense, which is slow: no other computes model.attn_logit_softcapping");
    return;
  }
  const kernels::AttentionShape shape{.batch = config.batch.micro,
                                      .seq_len = config.data.seq_len,
                                      .heads = held.heads,
                                      .kv_heads = held.kv_heads,
                                      .head_dim = std::max(held.head_dim, held.value_dim())};
  const std::string chosen =
      mpi::broadcast_text(world, speaks ? std::string(kernels::to_text(kernels::measure_attention(shape))) : "");
  kernels::set_attention_library(kernels::parse_attention_library(chosen));
  if (speaks) log::info(fmt::format("attention library: {} (fastest on this GPU)", chosen));
}

}  // namespace trireme::train

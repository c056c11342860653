// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/run_config.hpp"

namespace trireme::planner::testing {

inline config::Model llama_8b() {
  config::Model model;
  model.vocab_size = 128256;
  model.hidden_size = 4096;
  model.intermediate_size = 14336;
  model.layers = 32;
  model.heads = 32;
  model.kv_heads = 8;
  return model;
}

inline config::Model llama_70b() {
  config::Model model = llama_8b();
  model.hidden_size = 8192;
  model.intermediate_size = 28672;
  model.layers = 80;
  model.heads = 64;
  return model;
}

inline config::RunConfig run_of(const config::Model& model, std::int64_t global, std::int64_t micro) {
  config::RunConfig config;
  config.model = model;
  config.data.seq_len = 4096;
  config.batch = {.global = global, .micro = micro};
  config.device.type = config::DeviceType::cuda;
  return config;
}

/// Small enough to be simulated in full.
inline config::RunConfig small_run() {
  config::Model model;
  model.vocab_size = 1024;
  model.hidden_size = 256;
  model.intermediate_size = 512;
  model.layers = 3;
  model.heads = 8;
  config::RunConfig config = run_of(model, 16, 1);
  config.data.seq_len = 64;
  return config;
}

}  // namespace trireme::planner::testing

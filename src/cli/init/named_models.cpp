// SPDX-License-Identifier: Apache-2.0
#include "cli/init/named_models.hpp"

#include <vector>

namespace trireme::cli {
namespace {

config::Model llama3(std::int64_t hidden, std::int64_t intermediate, std::int64_t layers, std::int64_t heads) {
  config::Model model;
  model.vocab_size = 128256;
  model.hidden_size = hidden;
  model.intermediate_size = intermediate;
  model.layers = layers;
  model.heads = heads;
  model.kv_heads = 8;
  model.rope_theta = 500000;
  return model;
}

config::Model tiny() {
  config::Model model;
  model.hidden_size = 128;
  model.intermediate_size = 352;
  model.layers = 5;
  model.heads = 4;
  model.kv_heads = 2;
  return model;
}

config::Model gpt2() {
  config::Model model;
  model.architecture = "gpt2";
  model.vocab_size = 50257;
  model.hidden_size = 768;
  model.intermediate_size = 3072;
  model.layers = 12;
  model.heads = 12;
  model.positions = 1024;
  model.tie_embeddings = true;
  return model;
}

config::Model llama3_1b() {
  config::Model model = llama3(2048, 8192, 16, 32);
  model.tie_embeddings = true;
  return model;
}

config::Model qwen3_8b() {
  config::Model model = llama3(4096, 12288, 36, 32);
  model.architecture = "qwen3";
  model.vocab_size = 151936;
  model.head_dim = 128;
  model.norm_eps = 1e-6;
  model.rope_theta = 1000000;
  return model;
}

}  // namespace

std::span<const NamedModel> named_models() {
  static const std::vector<NamedModel> all{{"tiny", "A small Llama, which learns a book on a laptop", tiny(), 256},
                                           {"gpt2", "GPT-2 124M", gpt2(), 1024},
                                           {"llama3-1b", "Llama 3.2 1B", llama3_1b(), 4096},
                                           {"llama3-8b", "Llama 3 8B", llama3(4096, 14336, 32, 32), 8192},
                                           {"llama3-70b", "Llama 3 70B", llama3(8192, 28672, 80, 64), 8192},
                                           {"llama3-405b", "Llama 3.1 405B", llama3(16384, 53248, 126, 128), 8192},
                                           {"qwen3-8b", "Qwen3 8B", qwen3_8b(), 4096}};
  return all;
}

}  // namespace trireme::cli

// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/huggingface.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme::model {
namespace {

using M = config::Model;

HfForm llama() {
  return {.architecture = "llama",
          .model_type = "llama",
          .class_name = "LlamaForCausalLM",
          .optional_prefix = "",
          .embedding = "model.embed_tokens.weight",
          .sizes = {{"vocab_size", &M::vocab_size},
                    {"hidden_size", &M::hidden_size},
                    {"intermediate_size", &M::intermediate_size},
                    {"num_hidden_layers", &M::layers},
                    {"num_attention_heads", &M::heads},
                    {"num_key_value_heads", &M::kv_heads, false},
                    {"head_dim", &M::head_dim, false}},
          .norm_eps = "rms_norm_eps",
          .norm_eps_default = 1e-6,
          .tied_default = false,
          .rotary = true,
          .activation = "hidden_act",
          .activations = {"silu", "swish"},
          .flags = {{"attention_bias", false, "biases in attention"}, {"mlp_bias", false, "biases in the MLP"}},
          .dropout = {},
          .buffers = {".rotary_emb.inv_freq"}};
}

HfForm gpt2() {
  return {.architecture = "gpt2",
          .model_type = "gpt2",
          .class_name = "GPT2LMHeadModel",
          .optional_prefix = "transformer.",
          .embedding = "transformer.wte.weight",
          .sizes = {{"vocab_size", &M::vocab_size},
                    {"n_embd", &M::hidden_size},
                    {"n_inner", &M::intermediate_size, false, 4},
                    {"n_layer", &M::layers},
                    {"n_head", &M::heads},
                    {"n_positions", &M::positions}},
          .norm_eps = "layer_norm_epsilon",
          .norm_eps_default = 1e-5,
          .tied_default = true,
          .rotary = false,
          .activation = "activation_function",
          .activations = {"gelu_new", "gelu_pytorch_tanh"},
          .flags = {{"scale_attn_weights", true, "attention without its scale"},
                    {"scale_attn_by_inverse_layer_idx", false, "attention scaled by the layer"},
                    {"add_cross_attention", false, "cross attention"}},
          .dropout = {"resid_pdrop", "embd_pdrop", "attn_pdrop"},
          .buffers = {".attn.bias", ".attn.masked_bias"}};
}

}  // namespace

std::span<const HfForm> hf_forms() {
  static const std::vector<HfForm> all{llama(), gpt2()};
  return all;
}

const HfForm& hf_form(std::string_view architecture) {
  const auto all = hf_forms();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const HfForm& f) { return f.architecture == architecture; });
  invariant(found != all.end(), "every architecture has its Hugging Face form");
  return *found;
}

}  // namespace trireme::model

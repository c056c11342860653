// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al. 2019): learned positions, LayerNorm, biases and GELU in its tanh form. Transformers' Conv1D
// keeps weights as [in, out], q, k and v in one.
#include "model/families.hpp"

namespace trireme::model {

Architecture gpt2() {
  using M = config::Model;
  return {.name = "gpt2",
          .models = "GPT-2",
          .model_type = "gpt2",
          .class_name = "GPT2LMHeadModel",
          .optional_prefix = "transformer.",
          .decoder = {.norm = NormKind::layer,
                      .activation = Activation::gelu_tanh,
                      .learned_positions = true,
                      .joint_qkv = true,
                      .qkv_bias = true,
                      .o_bias = true,
                      .mlp_bias = true},
          .names = {{Role::embedding, "transformer.wte.weight"},
                    {Role::positions, "transformer.wpe.weight"},
                    {Role::attention_norm, "transformer.h.{}.ln_1.weight"},
                    {Role::attention_norm_bias, "transformer.h.{}.ln_1.bias"},
                    {Role::qkv, "transformer.h.{}.attn.c_attn.weight", true},
                    {Role::qkv_bias, "transformer.h.{}.attn.c_attn.bias"},
                    {Role::o, "transformer.h.{}.attn.c_proj.weight", true},
                    {Role::o_bias, "transformer.h.{}.attn.c_proj.bias"},
                    {Role::mlp_norm, "transformer.h.{}.ln_2.weight"},
                    {Role::mlp_norm_bias, "transformer.h.{}.ln_2.bias"},
                    {Role::up, "transformer.h.{}.mlp.c_fc.weight", true},
                    {Role::up_bias, "transformer.h.{}.mlp.c_fc.bias"},
                    {Role::down, "transformer.h.{}.mlp.c_proj.weight", true},
                    {Role::down_bias, "transformer.h.{}.mlp.c_proj.bias"},
                    {Role::final_norm, "transformer.ln_f.weight"},
                    {Role::final_norm_bias, "transformer.ln_f.bias"},
                    {Role::head, "lm_head.weight"}},
          .keys = {{"vocab_size", &M::vocab_size},
                   {"n_embd", &M::hidden_size},
                   {"n_inner", &M::intermediate_size, 0, 4},
                   {"n_layer", &M::layers},
                   {"n_head", &M::heads},
                   {"n_positions", &M::positions},
                   {"initializer_range", &M::init_std, 0.02},
                   {"layer_norm_epsilon", &M::norm_eps, 1e-5},
                   {"tie_word_embeddings", &M::tie_embeddings, true}},
          .activation_key = "activation_function",
          .activations = {"gelu_new", "gelu_pytorch_tanh"},
          .fixed = {{"scale_attn_weights", true, "attention without its scale"},
                    {"scale_attn_by_inverse_layer_idx", false, "attention scaled by the layer"},
                    {"add_cross_attention", false, "cross attention"}},
          .dropout = {"resid_pdrop", "embd_pdrop", "attn_pdrop"},
          .buffers = {".attn.bias", ".attn.masked_bias"}};
}

}  // namespace trireme::model

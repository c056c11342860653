// SPDX-License-Identifier: Apache-2.0
#include "huggingface/refused_families.hpp"

#include <array>

namespace trireme::huggingface {
namespace {

constexpr std::array families{
    RefusedFamily{"apertus", "its activation is xIELU", "olmo2"},
    RefusedFamily{"bamba", "it has state-space layers", "granite"},
    RefusedFamily{"bert", "it is an encoder, whose attention looks ahead", "llama"},
    RefusedFamily{"bloom", "it has position biases (ALiBi)", "gpt2"},
    RefusedFamily{"cohere", "it has attention and MLP in parallel", "llama"},
    RefusedFamily{"cohere2", "it has attention and MLP in parallel", "gemma2"},
    RefusedFamily{"dbrx", "it has clipped projections", "mixtral"},
    RefusedFamily{"deepseek_v2", "its router has softmax scores in groups", "deepseek_v3"},
    RefusedFamily{"deepseek_v32", "it has sparse latent attention", "deepseek_v3"},
    RefusedFamily{"falcon", "it has attention and MLP in parallel", "llama"},
    RefusedFamily{"falcon_h1", "it has state-space layers", "llama"},
    RefusedFamily{"falcon_mamba", "it has state-space layers", "llama"},
    RefusedFamily{"gemma3n_text", "it has embeddings of every layer", "gemma3_text"},
    RefusedFamily{"gemma4_text", "its layers of full attention have heads of another size", "gemma3_text"},
    RefusedFamily{"gpt_bigcode", "it has multi-query attention with learned positions", "gpt2"},
    RefusedFamily{"gpt_neo", "it has local attention without scaling", "gpt2"},
    RefusedFamily{"gpt_neox", "it has attention and MLP in parallel", "stablelm"},
    RefusedFamily{"gpt_oss", "it has attention sinks and clamped experts", "qwen3_moe"},
    RefusedFamily{"gptj", "it has attention and MLP in parallel", "llama"},
    RefusedFamily{"granitemoe", "its router is another one", "mixtral"},
    RefusedFamily{"granitemoehybrid", "it has state-space layers", "granite"},
    RefusedFamily{"jamba", "it has state-space layers", "mixtral"},
    RefusedFamily{"lfm2", "it has convolution layers", "qwen3"},
    RefusedFamily{"llama4_text", "it has chunked attention", "mixtral"},
    RefusedFamily{"mamba", "it has state-space layers", "llama"},
    RefusedFamily{"mamba2", "it has state-space layers", "llama"},
    RefusedFamily{"minimax", "it has linear attention", "mixtral"},
    RefusedFamily{"modernbert", "it is an encoder, whose attention looks ahead", "llama"},
    RefusedFamily{"mpt", "it has position biases (ALiBi)", "gpt2"},
    RefusedFamily{"nemotron", "its activation is a squared ReLU", "llama"},
    RefusedFamily{"nemotron_h", "it has state-space layers", "llama"},
    RefusedFamily{"olmo", "its norms have no weights", "olmo2"},
    RefusedFamily{"opt", "its activation is ReLU, and its positions have an offset", "gpt2"},
    RefusedFamily{"phi", "it has attention and MLP in parallel", "phi3"},
    RefusedFamily{"phimoe", "its router is another one", "mixtral"},
    RefusedFamily{"qwen3_next", "it has gated delta layers", "qwen3_moe"},
    RefusedFamily{"roberta", "it is an encoder, whose attention looks ahead", "llama"},
    RefusedFamily{"rwkv", "it has recurrent layers", "llama"},
    RefusedFamily{"t5", "it is an encoder with a decoder", "llama"},
    RefusedFamily{"zamba2", "it has state-space layers", "llama"},
};

}  // namespace

std::span<const RefusedFamily> refused_families() { return families; }

}  // namespace trireme::huggingface

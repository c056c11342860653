// SPDX-License-Identifier: Apache-2.0
#include "huggingface/bookkeeping_keys.hpp"

#include <algorithm>
#include <array>

namespace trireme::huggingface {

namespace {

constexpr std::array keys = std::to_array<std::string_view>({
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "_sliding_window_pattern",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "cache_implementation",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embedding_initializer_range",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "is_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "max_position_embeddings",
    "max_window_layers",
    "min_length",
    "n_ctx",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "reorder_and_upcast_attn",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
});
static_assert(std::is_sorted(keys.begin(), keys.end()));

}  // namespace

bool changes_no_values(std::string_view key) { return std::binary_search(keys.begin(), keys.end(), key); }

}  // namespace trireme::huggingface

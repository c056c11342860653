// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/model/decoder.hpp"

/// A model family as one value: its decoder block, the names of its tensors, and the keys of its config.json in Hugging
/// Face's format. Each has a file in src/model/architectures/; no other code depends on a family.
namespace trireme::model {

/// The tensor of a role's parameter. "{}" in its name is replaced by the layer, a second one by the expert.
struct NameRow {
  Role role;
  std::string_view tensor;
  bool transposed = false;      ///< files hold [in, out] (GPT-2's Conv1D)
  std::string_view joint = {};  ///< files hold it in this tensor, whose rows are those of all that name it, by role
};

using Member = std::variant<std::int64_t config::Model::*, double config::Model::*, bool config::Model::*>;

/// A key of config.json for a member of the run file's [model]: integers are at least 1, numbers above 0.
struct KeyRow {
  std::string_view key;
  Member member;
  std::optional<double> absent = {};  ///< its value if the key is absent or null; nothing: the key is required
  std::int64_t times_hidden = 0;      ///< default if absent: this multiple of the hidden size
  bool of_expert_sizes = false;       ///< the file has it in widths of one expert
  std::int64_t least = 1;             ///< of an integer
  bool null_is_zero = false;          ///< null, unlike absence, is 0, which is written as null
  std::string_view other_key = {};    ///< read where the key is absent: some versions of transformers write it
};

/// A key with one supported value, which is also written. Any other value is refused; the key may be absent.
struct FixedRow {
  std::string_view key;
  bool value;
  std::string_view feature;  ///< enabled by other values
};

/// A key that must switch nothing on: absent, null, false, 0 or empty.
struct OffRow {
  std::string_view key;
  std::string_view feature;  ///< enabled by the key
};

/// The keys of config.json that determine the windows of attention.
enum class Windows : std::uint8_t {
  none,
  all,       ///< sliding_window, of every layer (Mistral)
  layers,    ///< sliding_window and layer_types (Ministral)
  switched,  ///< the same, if use_sliding_window; else from layer max_window_layers on (Qwen)
};

/// A key with one supported word, which is also written. Any other word is refused; the key may be absent.
struct WordRow {
  std::string_view key, word;
};

struct Architecture {
  std::string_view name;                           ///< model.architecture
  std::string_view models;                         ///< whose they are, for `trireme models`
  std::string_view model_type;                     ///< config.json's
  std::vector<std::string_view> other_types = {};  ///< model_types of files that are read as this one
  std::string_view class_name;                     ///< in its "architectures"
  std::string_view optional_prefix = {};           ///< prefix of tensor names that some files omit
  Decoder decoder = {};
  std::vector<NameRow> names;
  std::vector<KeyRow> keys;
  Windows windows = Windows::none;
  std::int64_t window_absent = 0;  ///< sliding_window where the key is absent, which is not null
  /// Without layer_types every n-th layer has no window; 0: all have one. Some files have this key.
  std::int64_t full_every = 0;
  /// Above 0: the first max_window_layers have no window; this is the default of max_window_layers.
  std::int64_t max_window_layers_absent = 0;
  bool lists_windows = false;  ///< layer_types is required if layers have a window
  std::string_view full_every_key = {};
  bool full_first = false;          ///< the first of each n layers, not the last
  bool refuses_null = false;        ///< its class takes no null for sliding_window and bos_token_id
  double theta_absent = 10000;      ///< rope_theta if it is absent
  bool skips_rope = false;          ///< no_rope_layers and no_rope_layer_interval: layers without RoPE (SmolLM3)
  bool turns_windows_only = false;  ///< where layers have a window the others have no RoPE (EXAONE 4)
  /// Its class rescales RoPE if the table is absent: rope_parameters is always written, and required.
  bool rope_table_needed = false;
  /// RoPE is scaled by yarn, which has to be there, and queries with the position by its llama_4_scaling_beta
  /// (Ministral 3).
  bool scales_queries = false;
  double local_theta_absent = 0;          ///< with local_rope: rope_local_theta if it is absent
  std::string_view local_theta_key = {};  ///< in the dialect of transformers 4
  /// original_max_position_embeddings is a key next to rope_scaling of type longrope; the value if it is absent.
  std::int64_t original_length_absent = 0;
  bool heads_span_hidden = false;       ///< heads x head_dim is the hidden size
  bool o_bias_with_qkv = true;          ///< attention_bias is of o as well
  bool published_with_dropout = false;  ///< attention_dropout above 0 is read, and plays no part
  std::string_view activation_key;
  std::vector<std::string_view> activations;  ///< values that mean the same; the first is written
  /// mlp_only_layers and decoder_sparse_step: first layers without experts (Qwen3-MoE).
  bool lists_dense_layers = false;
  /// mlp_layer_types: "dense" for the first layers, "sparse" for the others; one is dense if it is absent
  /// (GLM-4.7-Flash).
  bool lists_mlp_types = false;
  /// Files may hold layers after the last one, which predict further tokens (DeepSeek-V3 2024): they are left aside.
  bool predicts_further = false;
  std::vector<FixedRow> fixed = {};
  std::vector<OffRow> off = {};
  std::vector<WordRow> only = {};
  std::vector<std::string_view> ones = {};     ///< keys that must be absent or 1, which is written
  std::vector<std::string_view> dropout = {};  ///< keys of rates that play no part: written as 0
  std::vector<std::string_view> buffers = {};  ///< endings of tensors that hold no parameters

  /// The tensor of a role. Throws BugError when the table leaves it out.
  [[nodiscard]] const NameRow& name_of(Role role) const;
  /// Whether a key of config.json represents `member`: others are refused, as transformers does not support them.
  [[nodiscard]] bool expresses(Member member) const;
  /// Whether first layers may be without experts.
  [[nodiscard]] bool has_dense_layers() const {
    return lists_dense_layers || lists_mlp_types || expresses(&config::Model::dense_layers);
  }
};

/// All families. The family `name`. Throws ConfigError for an unknown one, with the known names.
[[nodiscard]] std::span<const Architecture> architectures();
[[nodiscard]] const Architecture& architecture(std::string_view name);

/// The decoder of a model of this run file: its architecture's, with the options of the run file.
[[nodiscard]] Decoder decoder_of(const config::Model& config);

/// The window of attention in a layer: how many keys a query sees, its own included; 0: all before it.
[[nodiscard]] std::int64_t window_of(const config::Model& config, std::int64_t layer);
/// The same layers in the shortest form: the shortest cycle of layer_types for its number of layers, and no unused
/// keys.
[[nodiscard]] config::Model in_shortest_form(config::Model config);
/// The base of RoPE in layers with a window, if they have their own.
[[nodiscard]] double local_theta_of(const config::Model& config);
/// Whether a layer has RoPE.
[[nodiscard]] bool rotates(const config::Model& config, std::int64_t layer);

}  // namespace trireme::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/huggingface/safetensors.hpp"
#include "trireme/model/model.hpp"
#include "trireme/model/multimodal.hpp"
#include "trireme/shard/layout.hpp"

/// Weights as Hugging Face directories: config.json with model.safetensors, or with several files and their index.
namespace trireme::huggingface {

inline constexpr std::int64_t fp8_block = 128;
inline constexpr std::string_view scale_ending = "_scale_inv";

/// The contents of config.json.
struct HfConfig {
  config::Model model;  ///< architecture, sizes (none left 0), norm, RoPE, tying, init_std; no `from`
  std::int64_t max_position_embeddings = 0;  ///< 0: not given
  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;  ///< empty: not given
  /// Unsupported keys that may change the model's results, with their values ("rope_scaling.alpha = 8"); sorted, those
  /// of RoPE first. The caller should warn of them.
  std::vector<std::string> unread_keys;
  /// Keys of config.json, and all of generation_config.json ("" if there is none), that training leaves as they are:
  /// JSON tables that an export repeats.
  std::string kept, kept_generation;
  const model::Multimodal* multimodal = nullptr;  ///< whose text part this is; null: none's
  /// quantization_config: weights may be e4m3 with one fp32 scale for each block of fp8_block x fp8_block elements, in
  /// the tensor of their name + scale_ending.
  bool fp8_blocks = false;
  bool tied_unsaid = false;  ///< of a text part: no table has tie_word_embeddings, files that hold a head are not tied
};

/// Reads config.json of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters); `file` is its name in
/// messages. Reads the text part of a multimodal model. Throws CheckpointError with all missing and unsupported keys:
/// another model_type or hidden_act, biases, sliding windows, query/key norms, softcaps, dropout, quantization, RoPE
/// types other than default and llama3.
[[nodiscard]] HfConfig parse_hf_config(std::string_view text, const std::string& file);

/// The config.json of a directory, and its generation_config.json, whose eos_token_id are added to those of
/// config.json. Throws CheckpointError.
[[nodiscard]] HfConfig read_hf_config(const std::string& directory);

/// Logs one warning of the unread keys of `directory`'s config.json, if there are any; and of a multimodal model one
/// line of the keys left aside.
void warn_of_unread_keys(const HfConfig& config, const std::string& directory);

/// True when `path` is a directory with a config.json.
[[nodiscard]] bool is_huggingface(const std::string& path);

/// A Hugging Face directory open for reading. Not collective: every rank may open it and read its own slices.
class HfDirectory {
 public:
  /// Reads config.json and the headers of all weight files. model.safetensors takes precedence over
  /// model.safetensors.index.json, as in transformers. Throws CheckpointError.
  [[nodiscard]] static HfDirectory open(const std::string& directory);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const HfConfig& config() const { return config_; }
  /// Paths of config.json, the index if there is one, and the weight files.
  [[nodiscard]] std::vector<std::string> files() const;
  /// Names of all tensors in the weight files; of a multimodal model those of the text part, as a text model has them.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Tensors of a multimodal model that are not of its text part, and their bytes.
  [[nodiscard]] std::int64_t tensors_aside() const { return tensors_aside_; }
  [[nodiscard]] Bytes bytes_aside() const { return bytes_aside_; }

  /// Compares the files with the parameters of `model`. Throws CheckpointError listing every tensor that is missing, of
  /// another shape or of a dtype that cannot be read, and every tensor that the model would not use. Two are known to
  /// be superfluous and accepted: `*.rotary_emb.inv_freq` of old exports, and the lm_head.weight of a tied model if it
  /// equals the embedding (this reads both); if it differs, transformers 4 would ignore and transformers 5 would use
  /// it, so it is refused.
  void check(const model::Model& model) const;

  /// Reads `elements` (row-major) of the tensor `name` into `values`, of the same size. Throws CheckpointError.
  void read_slice(std::string_view name, shard::Range elements, std::span<float> values) const;
  /// Reads `elements` of the whole parameter, row-major in
  /// its full shape, for any name and order in the files.
  void read_slice(const model::Parameter& parameter, shard::Range elements, std::span<float> values) const;

 private:
  HfDirectory(std::string path, HfConfig config) : path_(std::move(path)), config_(std::move(config)) {}
  void open_single();
  void open_indexed();
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  /// Why a tensor cannot be read as floating-point numbers; "" if it can.
  [[nodiscard]] std::string unreadable(std::string_view name) const;
  /// Multiplies `elements` of a tensor of fp8 blocks by their scales.
  void scale_blocks(std::string_view name, shard::Range elements, std::span<float> values) const;
  void refuse_wrapped_names(std::string_view embedding) const;
  [[nodiscard]] bool tied_head_equals_embedding(std::string_view embedding_name) const;
  /// The tensor's name in these files for a parameter: some leave out a prefix.
  [[nodiscard]] std::string name_in_files(std::string_view parameter) const;
  /// Leaves the tensors of the text part only, under the names of a text model. Throws CheckpointError for tensors that
  /// belong to neither, and for two of one name.
  void keep_text_part();

  /// Location of a tensor.
  struct Place {
    std::size_t file = 0;  ///< index in files_
    std::string name;      ///< in the file
  };
  std::string path_;
  HfConfig config_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> place_of_;  ///< by the tensor's name
  std::int64_t tensors_aside_ = 0;
  Bytes bytes_aside_;
};

/// The run file's model completed from the weights that it starts from. A value of
/// the run file that is 0 (sizes), absent (rope_scaling) or at its default (norm_eps,
/// rope_theta, tie_embeddings) counts as unset. Initialisation and `from` are the run
/// file's. Throws ConfigError with every value that is set in both and differs.
[[nodiscard]] config::Model merge_model_config(const config::Model& from_file, const config::Model& from_hf);

/// The tensor in which files hold a parameter, maybe with others, and its shape.
[[nodiscard]] const std::string& tensor_in_files(const model::Parameter& parameter);
[[nodiscard]] std::vector<std::int64_t> shape_in_files(const model::Parameter& parameter);

struct HfWriteOptions {
  DType dtype = DType::fp32;
  Bytes most_file_bytes{
      5'000'000'000};  ///< larger models are cut into several files with an index; a tensor is never cut
  bool overwrite = false;
  std::int64_t max_position_embeddings = 2048;  ///< 0: not known
  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;  ///< where generation stops
  std::string kept, kept_generation;        ///< HfConfig::kept of the model that training began from
  std::string tokenizer;                    ///< spec of the tokenizer that made the training data; empty: not known
  std::string tokenizer_fingerprint;        ///< of its files
  std::string tokenizer_library;            ///< versions of the libraries that compute its ids; empty: not known
  std::map<std::string, std::string> tokenizer_files;  ///< written with the weights: text by name
};

/// Returns all elements of a parameter, valid until the next call.
using ParameterProvider = std::function<std::span<const float>(model::ParamRef)>;

/// Throws CheckpointError unless `write_huggingface` may write to `directory`: it does not exist, or is empty, or
/// `overwrite` is set and it holds only files of an earlier export. Call it before a run starts.
void check_export_target(const std::string& directory, bool overwrite);

/// Writes `model` as a directory that transformers 4 and 5 load: config.json, generation_config.json, the
/// tokenizer's files, weights.
/// Keys of `options.kept` that the model does not decide are repeated; so is `options.kept_generation`, with end tokens
/// that neither lists.
/// `provider` is called once for each parameter, in the model's order. Everything is written to `.<name>.partial` and
/// flushed first, so that a kill leaves what was there; only one between the two renames that overwrite leaves it as
/// `.<name>.old`. On one rank only. Throws CheckpointError (as check_export_target) and WriteError.
void write_huggingface(const std::string& directory, const model::Model& model, const HfWriteOptions& options,
                       const ParameterProvider& provider);

}  // namespace trireme::huggingface

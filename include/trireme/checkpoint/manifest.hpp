// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/mesh/mesh.hpp"
#include "trireme/model/model.hpp"
#include "trireme/optimizer/plan.hpp"
#include "trireme/optimizer/spikes.hpp"
#include "trireme/shard/hyperslab.hpp"
#include "trireme/shard/layout.hpp"

/// Contents of a checkpoint, as values. docs/checkpoints.md describes the files.
namespace trireme::checkpoint {

/// Values saved for every parameter: its own, then the optimizer's states in their order.
enum class Quantity : int { parameter };
/// Index of a state in OptimizerPlan::states().
[[nodiscard]] constexpr int state_of(Quantity state) { return static_cast<int>(state) - 1; }
/// The quantities of formats 2 and 3: the parameters and AdamW's states.
inline constexpr auto all_quantities = [] {
  std::array<Quantity, 1 + optimizer::adamw_states.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Quantity>(i);
  return all;
}();
/// The group that holds it, in every file: "model" or the name of the state.
[[nodiscard]] std::string_view to_text(Quantity quantity);

/// Names with values as text, in order: compared key by key when a run is resumed.
using Metadata = std::vector<std::pair<std::string, std::string>>;
/// One line for each key whose values differ: "key: saved X, now Y"; nothing when all are equal.
[[nodiscard]] std::vector<std::string> differences(const Metadata& saved, const Metadata& now);

/// Samples that a run skipped on purpose: those from `first` to before `end`, after step `step`.
struct SkippedSamples {
  std::int64_t step = 0;
  std::int64_t first = 0;
  std::int64_t end = 0;
  friend bool operator==(const SkippedSamples&, const SkippedSamples&) = default;
};

/// Progress of a run, apart from its tensors.
struct State {
  std::int64_t step = 0;              ///< finished steps
  std::int64_t updates = 0;           ///< AdamW's count: steps that were not skipped
  std::int64_t skipped = 0;           ///< steps skipped since the run began
  std::int64_t skipped_in_a_row = 0;  ///< at the end, consecutive
  std::int64_t tokens = 0;            ///< inputs processed
  std::uint64_t seed = 0;
  double learning_rate = 0;                     ///< of the last step; for people, the next one follows from the step
  std::int64_t samples = 0;                     ///< samples of the run consumed: data::SamplerState::position
  std::vector<std::int64_t> taken;              ///< data::SamplerState::taken
  std::vector<SkippedSamples> skipped_samples;  ///< by data.skip_to, in the order of the steps
  std::string run_id;                           ///< of the run that saved; a run manages only its own checkpoints
  optimizer::SpikeWindow spikes;                ///< of the steps before
  Metadata data;                                ///< inputs of the order of the samples
  Metadata tuned_settings;                      ///< measured or automatic settings, which a resumed run keeps
  Metadata generation;   ///< for an export: max_position_embeddings, special tokens, kept keys of config.json
  std::string run_file;  ///< effective run file
};

/// Elements covered by one checksum; the last chunk of a slice may have fewer.
inline constexpr std::int64_t chunk_elements = std::int64_t{1} << 20;

/// A piece of one parameter in a shard file, stored contiguously.
struct SavedSlice {
  int parameter = 0;                     ///< index in Manifest::parameters
  shard::Hyperslab hyperslab;            ///< elements of the parameter, row-major
  std::int64_t offset = 0;               ///< of its first element, in the dataset
  std::vector<std::uint64_t> checksums;  ///< XXH3 of every `chunk_elements` of the slice, as bytes of the file
  [[nodiscard]] std::int64_t chunks() const { return (hyperslab.size() + chunk_elements - 1) / chunk_elements; }
  /// The elements that checksum `index` covers, counted from the slice's first one.
  [[nodiscard]] shard::Range chunk(std::int64_t index) const {
    return {.begin = index * chunk_elements, .end = std::min((index + 1) * chunk_elements, hyperslab.size())};
  }
};

/// A dataset of a shard file: parts of a block's flat buffer, one for each rank that writes the file, fp32, contiguous.
struct SavedDataset {
  std::string name;  ///< "model/b0"
  Quantity quantity = Quantity::parameter;
  std::int64_t elements = 0;
  std::int64_t byte_offset = 0;  ///< of its first element, in the file
  std::vector<SavedSlice> slices;
};

struct SavedFile {
  std::string path;  ///< relative to the checkpoint: "shards/dp-00003-tp-00.h5"
  int pipeline_rank = 0;
  int dp_rank = 0;  ///< the lowest of those that write it
  int tensor_rank = 0;
  std::int64_t bytes = 0;
  std::uint64_t rest = 0;  ///< XXH3 of all bytes that belong to no slice, in order
  std::vector<SavedDataset> datasets;
};

struct SavedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  [[nodiscard]] std::int64_t elements() const;
};

struct Manifest {
  State state;
  mesh::Mesh mesh;
  int ranks_per_file = 1;  ///< consecutive dp ranks that share a file; the last file may be of fewer
  Metadata model;          ///< architecture and sizes
  Metadata versions;       ///< of the program and its libraries
  std::vector<SavedParameter> parameters;
  std::vector<optimizer::UpdateRule> rules;  ///< by parameter; empty: AdamW updates all
  std::vector<SavedFile> files;
  std::vector<std::uint64_t> digests;  ///< by world rank: `shard_digest` of all that it held
};

/// The format version of a checkpoint: the lowest one that can represent it, so that earlier builds can read as many as
/// possible. Version 3 adds pipeline ranks, version 4 parameters that are not updated by AdamW.
[[nodiscard]] inline int format_version(const Manifest& manifest) {
  if (!manifest.rules.empty()) return 4;
  return manifest.mesh.pipeline > 1 ? 3 : 2;
}
/// The versions that this program reads.
inline constexpr std::array format_versions{2, 3, 4};

/// The rules of all parameters in the model's order; empty if AdamW updates all.
[[nodiscard]] std::vector<optimizer::UpdateRule> saved_rules(const model::Model& model,
                                                             const optimizer::OptimizerPlan& plan);
/// The name of a rule in a manifest.
[[nodiscard]] std::string_view to_text(optimizer::UpdateRule rule);
/// The states of parameters that a rule updates.
[[nodiscard]] inline std::span<const std::string_view> states_of(optimizer::UpdateRule rule) {
  return std::span(optimizer::adamw_states).first(rule == optimizer::UpdateRule::adamw ? 2 : 1);
}
/// Whether the elements of parameter `index` have a quantity.
[[nodiscard]] inline bool has(const Manifest& manifest, Quantity quantity, std::size_t index) {
  return manifest.rules.empty() || manifest.rules[index] == optimizer::UpdateRule::adamw ||
         quantity == Quantity::parameter || state_of(quantity) == 0;
}

/// Architecture and sizes of a model, to be compared.
[[nodiscard]] Metadata model_metadata(const model::Model& model);
/// All parameters in the model's order, which SavedSlice::parameter indexes.
[[nodiscard]] std::vector<SavedParameter> saved_parameters(const model::Model& model);

/// Columns of a row: all of a vector's elements.
[[nodiscard]] inline std::int64_t columns_of(const SavedParameter& parameter) { return parameter.shape.back(); }

/// Files of a checkpoint: each pipeline and each tensor rank has its own.
[[nodiscard]] std::int64_t files_of(const mesh::Mesh& mesh, std::int64_t ranks_per_file);

/// "shards/dp-00003-tp-00.h5"; with a pipeline "shards/dp-00003-pp-01-tp-00.h5".
[[nodiscard]] std::string shard_path(int dp_rank, int tensor_rank = 0, std::optional<int> pipeline_rank = {});
/// The same of a rank of `mesh`, without a pipeline rank if there is one only.
[[nodiscard]] std::string shard_path(const mesh::Mesh& mesh, int pipeline_rank, int dp_rank, int tensor_rank);

[[nodiscard]] std::string file_to_json(const SavedFile& file);
/// files: the results of `file_to_json` for the manifest's files, used instead of Manifest::files.
[[nodiscard]] std::string to_json(const Manifest& manifest, const std::vector<std::string>& files);

/// State::run_id of a manifest written by `to_json`, without reading all of it; "" if it has none.
[[nodiscard]] std::string run_id_in(std::string_view json);
/// State::skipped_in_a_row, likewise; 0 when it has none.
[[nodiscard]] std::int64_t skipped_in_a_row_in(std::string_view json);

/// Reads an untrusted manifest: checks sizes, ranges, names and paths, and that every element of every parameter is
/// there once. Throws CheckpointError with `name` (the file) and the mistake.
[[nodiscard]] Manifest parse_manifest(const std::string& name, std::string_view text);

}  // namespace trireme::checkpoint

// SPDX-License-Identifier: Apache-2.0
//
// The manifest as JSON. 64-bit hashes are hexadecimal strings: JSON's numbers are doubles for most readers.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trireme/base/text.hpp"
#include "trireme/checkpoint/manifest.hpp"

namespace trireme::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::vector<std::string> hex(const std::vector<std::uint64_t>& values) {
  std::vector<std::string> texts;
  for (const std::uint64_t value : values) texts.push_back(hex(value));
  return texts;
}

Json metadata_json(const Metadata& metadata) {
  Json object = Json::object();
  for (const auto& [key, value] : metadata) object[key] = value;
  return object;
}

/// A pipeline axis is written only if there is one: earlier builds do not support it.
Json mesh_json(const mesh::Mesh& mesh) {
  Json json{{"replicate", mesh.replicate}, {"shard", mesh.shard}, {"tensor", mesh.tensor}};
  if (mesh.pipeline > 1) json["pipeline"] = mesh.pipeline;
  return json;
}

/// The states of each rule, and the parameters that it updates.
Json rules_json(const Manifest& manifest) {
  Json json = Json::object();
  for (const optimizer::UpdateRule rule : {optimizer::UpdateRule::adamw, optimizer::UpdateRule::muon}) {
    Json states = Json::array(), parameters = Json::array();
    for (std::size_t p = 0; p < manifest.rules.size(); ++p)
      if (manifest.rules[p] == rule) parameters.push_back(p);
    for (const std::string_view state : states_of(rule)) states.push_back(state);
    json[std::string(to_text(rule))] = {{"states", std::move(states)}, {"parameters", std::move(parameters)}};
  }
  return json;
}

}  // namespace

std::string file_to_json(const SavedFile& file) {
  Json datasets = Json::array();
  for (const SavedDataset& dataset : file.datasets) {
    Json slices = Json::array();
    for (const SavedSlice& slice : dataset.slices)
      slices.push_back({slice.parameter, slice.hyperslab.first, slice.hyperslab.length, slice.hyperslab.stride,
                        slice.hyperslab.count, slice.offset, Json(hex(slice.checksums))});
    datasets.push_back({{"name", dataset.name},
                        {"elements", dataset.elements},
                        {"byte_offset", dataset.byte_offset},
                        {"slices", std::move(slices)}});
  }
  Json json{{"path", file.path}, {"dp_rank", file.dp_rank}, {"tensor_rank", file.tensor_rank}};
  if (file.pipeline_rank > 0) json["pipeline_rank"] = file.pipeline_rank;
  json.update(Json{{"bytes", file.bytes}, {"rest", hex(file.rest)}, {"datasets", std::move(datasets)}});
  return json.dump();
}

std::string to_json(const Manifest& manifest, const std::vector<std::string>& files) {
  const State& state = manifest.state;
  Json parameters = Json::array();
  for (const SavedParameter& parameter : manifest.parameters)
    parameters.push_back(Json::array({parameter.name, parameter.shape}));
  Json skipped_samples = Json::array();
  for (const SkippedSamples& one : state.skipped_samples)
    skipped_samples.push_back(Json::array({one.step, one.first, one.end}));
  Json json{{"format", "trireme checkpoint"},
            {"version", format_version(manifest)},
            {"run", state.run_id},
            {"step", state.step},
            {"updates", state.updates},
            {"skipped", state.skipped},
            {"skipped_in_a_row", state.skipped_in_a_row},
            {"tokens", state.tokens},
            {"seed", state.seed},
            {"learning_rate", state.learning_rate},
            {"samples", state.samples},
            {"taken", state.taken},
            {"passed_over", std::move(skipped_samples)},
            {"spike_window", {{"losses", state.spikes.losses}, {"grad_norms", state.spikes.grad_norms}}},
            {"data", metadata_json(state.data)},
            {"choices", metadata_json(state.tuned_settings)},
            {"generation", metadata_json(state.generation)},
            {"mesh", mesh_json(manifest.mesh)},
            {"ranks_per_file", manifest.ranks_per_file},
            {"model", metadata_json(manifest.model)},
            {"versions", metadata_json(manifest.versions)},
            {"chunk_elements", chunk_elements},
            {"parameters", std::move(parameters)}};
  if (!manifest.rules.empty()) json["rules"] = rules_json(manifest);
  json.update(Json{{"digests", hex(manifest.digests)}, {"run_file", state.run_file}});
  std::string text = json.dump();
  text.pop_back();  // the files are JSON already
  return fmt::format("{},\"files\":[{}]}}", text, join(files, ","));
}

}  // namespace trireme::checkpoint

// SPDX-License-Identifier: Apache-2.0
//
// Reading a manifest: anybody may have written it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "checkpoint/rectangles.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/manifest.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::size_t most_run_id = 64;
constexpr std::int64_t most_ranks = std::int64_t{1} << 20;  // the product of two fits into 64 bits
constexpr std::int64_t most_elements = std::int64_t{1} << 53;

/// Reads with checks; what it throws has no file name yet.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void require(bool holds, const std::string& what) {
  if (!holds) throw Refused(what);
}

std::int64_t whole(const nlohmann::json& value, const char* what, std::int64_t least = 0,
                   std::int64_t most = most_elements) {
  require(value.is_number_integer(), fmt::format("{} is not an integer", what));
  const auto number = value.get<std::int64_t>();
  require(number >= least && number <= most, fmt::format("{} = {} is out of range", what, number));
  return number;
}

std::uint64_t unsigned_word(const nlohmann::json& value, const char* what) {
  require(value.is_number_unsigned(), fmt::format("{} is not an integer from 0 on", what));
  return value.get<std::uint64_t>();
}

/// Adds to a sum that stays within what 64 bits, and doubles, hold.
void add(std::int64_t& sum, std::int64_t value, const char* what) {
  require(value <= most_elements - sum, fmt::format("{} are too many", what));
  sum += value;
}

std::uint64_t from_hex(const nlohmann::json& value) {
  const auto text = value.get<std::string>();
  std::uint64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  require(text.size() == 16 && problem == std::errc{} && end == text.data() + text.size(), "a checksum is malformed");
  return number;
}

std::vector<std::uint64_t> hashes(const nlohmann::json& values) {
  std::vector<std::uint64_t> result;
  for (const auto& value : values) result.push_back(from_hex(value));
  return result;
}

Metadata sorted_metadata(const nlohmann::json& object) {
  Metadata metadata;
  for (const auto& [key, value] : object.items()) metadata.emplace_back(key, value.get<std::string>());
  return metadata;
}

/// The same of a key that may be absent: files of an earlier build lack it.
Metadata metadata_or_none(const nlohmann::json& json, const char* key) {
  return json.contains(key) ? sorted_metadata(json.at(key)) : Metadata{};
}

std::vector<SkippedSamples> skipped_samples_of(const nlohmann::json& json) {
  std::vector<SkippedSamples> all;
  if (!json.contains("passed_over")) return all;
  for (const auto& entry : json.at("passed_over"))
    all.push_back({.step = whole(entry.at(0), "a step"),
                   .first = whole(entry.at(1), "a sample"),
                   .end = whole(entry.at(2), "a sample")});
  return all;
}

SavedParameter parameter_of(const nlohmann::json& json) {
  SavedParameter parameter{.name = json.at(0).get<std::string>(), .shape = {}};
  std::int64_t product = 1;
  for (const auto& size : json.at(1)) {
    parameter.shape.push_back(whole(size, "a size", 1));
    require(!__builtin_mul_overflow(product, parameter.shape.back(), &product) && product <= most_elements,
            fmt::format("{} has too many elements", parameter.name));
  }
  require(!parameter.shape.empty() && parameter.name.find('/') == std::string::npos, "a parameter has no good name");
  return parameter;
}

std::vector<SavedParameter> parameters_of(const nlohmann::json& json) {
  std::vector<SavedParameter> parameters;
  std::int64_t elements = 0;
  for (const auto& parameter : json) {
    parameters.push_back(parameter_of(parameter));
    add(elements, parameters.back().elements(), "the elements of all parameters");
  }
  require(!parameters.empty(), "it has no parameters");
  return parameters;
}

mesh::Mesh mesh_of(const nlohmann::json& json) {
  mesh::Mesh mesh;
  std::int64_t ranks = 1;
  const auto axis = [&](const char* name, int& size) {
    size = static_cast<int>(whole(json.at(name), name, 1, most_ranks));
    require((ranks *= size) <= most_ranks, "a mesh of that many ranks is out of range");
  };
  if (json.contains("pipeline")) axis("pipeline", mesh.pipeline);
  axis("replicate", mesh.replicate);
  axis("shard", mesh.shard);
  axis("tensor", mesh.tensor);
  return mesh;
}

/// Runs that lie within a parameter; several of them in the same columns of consecutive rows.
shard::Hyperslab hyperslab_of(const nlohmann::json& json, const SavedParameter& parameter) {
  const std::int64_t elements = parameter.elements();
  const std::int64_t columns = columns_of(parameter);
  shard::Hyperslab hyperslab{.first = whole(json.at(1), "a slice's first element", 0, elements - 1),
                             .length = whole(json.at(2), "the length of a slice's runs", 1, elements),
                             .stride = whole(json.at(3), "a slice's stride", 0, columns),
                             .count = whole(json.at(4), "a slice's number of runs", 1, elements)};
  if (hyperslab.count == 1)
    require(hyperslab.stride == 0 && hyperslab.length <= elements - hyperslab.first,
            fmt::format("a slice of {} is out of range", parameter.name));
  else
    require(hyperslab.stride == columns && hyperslab.first % columns + hyperslab.length <= columns &&
                hyperslab.count <= elements / columns - hyperslab.first / columns,
            fmt::format("a slice of {} is out of range: its runs are not parts of its rows", parameter.name));
  return hyperslab;
}

SavedSlice slice_of(const nlohmann::json& json, const std::vector<SavedParameter>& parameters, std::int64_t room) {
  const auto index = whole(json.at(0), "a parameter's index", 0, static_cast<std::int64_t>(parameters.size()) - 1);
  const SavedParameter& parameter = parameters[static_cast<std::size_t>(index)];
  SavedSlice slice{.parameter = static_cast<int>(index), .checksums = hashes(json.at(6))};
  slice.hyperslab = hyperslab_of(json, parameter);
  slice.offset = whole(json.at(5), "a slice's offset", 0, room - slice.hyperslab.size());
  require(static_cast<std::int64_t>(slice.checksums.size()) == slice.chunks(),
          fmt::format("a slice of {} has {} checksums instead of {}", parameter.name, slice.checksums.size(),
                      slice.chunks()));
  return slice;
}

Quantity quantity_of(const std::string& dataset) {
  for (const Quantity quantity : all_quantities)
    if (dataset.starts_with(std::string(to_text(quantity)) + "/")) return quantity;
  throw Refused(fmt::format("dataset {} belongs to no known group", io::in_quotes(dataset)));
}

SavedFile file_of(const nlohmann::json& json, const mesh::Mesh& mesh, const std::vector<SavedParameter>& parameters) {
  const auto rank_or_first = [&](const char* axis) {
    return json.contains(axis) ? static_cast<int>(whole(json.at(axis), axis, 0, 1 << 20)) : 0;
  };
  SavedFile file{.path = json.at("path").get<std::string>(),
                 .pipeline_rank = rank_or_first("pipeline_rank"),
                 .dp_rank = static_cast<int>(whole(json.at("dp_rank"), "dp_rank", 0, 1 << 30)),
                 .tensor_rank = rank_or_first("tensor_rank"),
                 .bytes = whole(json.at("bytes"), "a file's bytes"),
                 .rest = from_hex(json.at("rest")),
                 .datasets = {}};
  require(file.path == shard_path(mesh, file.pipeline_rank, file.dp_rank, file.tensor_rank),
          fmt::format("the path {} is not a shard's", io::in_quotes(file.path)));
  for (const auto& entry : json.at("datasets")) {
    SavedDataset dataset{.name = entry.at("name").get<std::string>(),
                         .elements = whole(entry.at("elements"), "a dataset's elements", 1, file.bytes / 4),
                         .slices = {}};
    dataset.quantity = quantity_of(dataset.name);
    dataset.byte_offset = whole(entry.at("byte_offset"), "a dataset's offset", 0, file.bytes - 4 * dataset.elements);
    for (const auto& slice : entry.at("slices"))
      dataset.slices.push_back(slice_of(slice, parameters, dataset.elements));
    file.datasets.push_back(std::move(dataset));
  }
  return file;
}

/// Every element of every parameter lies in exactly one slice.
void require_cover(const Manifest& manifest) {
  std::vector<std::vector<Rectangle>> found(all_quantities.size() * manifest.parameters.size());
  for (const SavedFile& file : manifest.files)
    for (const SavedDataset& dataset : file.datasets)
      for (const SavedSlice& slice : dataset.slices)
        for (const Rectangle& part :
             rectangles(slice.hyperslab, columns_of(manifest.parameters[static_cast<std::size_t>(slice.parameter)])))
          found[static_cast<std::size_t>(dataset.quantity) * manifest.parameters.size() +
                static_cast<std::size_t>(slice.parameter)]
              .push_back(part);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const SavedParameter& parameter = manifest.parameters[i % manifest.parameters.size()];
    const std::int64_t columns = columns_of(parameter);
    const std::string why = not_covered_once(std::move(found[i]), parameter.elements() / columns, columns);
    require(why.empty(), fmt::format("{} {}", parameter.name, why));
  }
}

/// The files are those of the mesh, in order.
void require_files(const Manifest& manifest) {
  const mesh::Mesh& mesh = manifest.mesh;
  require(static_cast<std::int64_t>(manifest.files.size()) == files_of(mesh, manifest.ranks_per_file) &&
              manifest.digests.size() == static_cast<std::size_t>(mesh.ranks()),
          "the mesh has another number of ranks than there are files");
  const std::int64_t of_pipeline_rank = files_of(mesh, manifest.ranks_per_file) / mesh.pipeline;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const SavedFile& file = manifest.files[i];
    add(bytes, file.bytes, "the bytes of all files");
    const auto index = static_cast<std::int64_t>(i);
    require(file.pipeline_rank == index / of_pipeline_rank &&
                file.dp_rank == index % of_pipeline_rank / mesh.tensor * manifest.ranks_per_file &&
                file.tensor_rank == index % mesh.tensor,
            "files are out of order");
  }
}

State state_of(const nlohmann::json& json) {
  State state{.step = whole(json.at("step"), "step"),
              .updates = whole(json.at("updates"), "updates"),
              .skipped = whole(json.at("skipped"), "skipped"),
              .skipped_in_a_row = whole(json.at("skipped_in_a_row"), "skipped_in_a_row"),
              .tokens = whole(json.at("tokens"), "tokens"),
              .seed = unsigned_word(json.at("seed"), "seed"),
              .learning_rate = json.at("learning_rate").get<double>(),
              .samples = whole(json.at("samples"), "samples"),
              .taken = {},
              .skipped_samples = skipped_samples_of(json),
              .run_id = json.contains("run") ? json.at("run").get<std::string>() : "",
              .data = sorted_metadata(json.at("data")),
              .tuned_settings = metadata_or_none(json, "choices"),
              .generation = metadata_or_none(json, "generation"),
              .run_file = json.at("run_file").get<std::string>()};
  require(state.run_id.size() <= most_run_id, "the run's id is too long");
  for (const auto& count : json.at("taken")) state.taken.push_back(whole(count, "taken"));
  return state;
}

Manifest manifest_of(const nlohmann::json& json) {
  require(json.at("format") == "trireme checkpoint", "not a Trireme manifest");
  const auto version = whole(json.at("version"), "version");
  require(std::ranges::find(format_versions, version) != format_versions.end(),
          fmt::format("it has format version {}, this program reads versions {}", version,
                      fmt::join(format_versions, " and ")));
  require(json.at("chunk_elements") == chunk_elements, "chunk_elements is not the format's");
  Manifest manifest{.state = state_of(json), .model = sorted_metadata(json.at("model"))};
  manifest.versions = sorted_metadata(json.at("versions"));
  manifest.mesh = mesh_of(json.at("mesh"));
  require(version == format_version(manifest.mesh), "its mesh is not of its format version");
  manifest.parameters = parameters_of(json.at("parameters"));
  manifest.ranks_per_file = static_cast<int>(whole(json.at("ranks_per_file"), "ranks_per_file", 1, 1 << 20));
  for (const auto& file : json.at("files")) manifest.files.push_back(file_of(file, manifest.mesh, manifest.parameters));
  manifest.digests = hashes(json.at("digests"));
  require_files(manifest);
  require_cover(manifest);
  return manifest;
}

}  // namespace

std::string run_id_in(std::string_view json) {
  for (const int version : format_versions) {
    const std::string before = fmt::format(R"({{"format":"trireme checkpoint","version":{},"run":")", version);
    if (!json.starts_with(before)) continue;
    const std::string_view rest = json.substr(before.size(), most_run_id + 1);
    return std::string(rest.substr(0, std::min(rest.find('"'), rest.size())));
  }
  return "";
}

std::int64_t skipped_in_a_row_in(std::string_view json) {
  // Among the first keys, whose values are numbers; the run file's text, which may hold anything, comes after "data".
  constexpr std::string_view key = R"("skipped_in_a_row":)";
  const std::size_t at = json.substr(0, json.find(R"("data":)")).find(key);
  if (at == std::string_view::npos) return 0;
  std::int64_t skipped = 0;
  const char* begin = json.data() + at + key.size();
  (void)std::from_chars(begin, json.data() + json.size(), skipped);
  return skipped;
}

Manifest parse_manifest(const std::string& name, std::string_view text) {
  try {
    return manifest_of(io::parse_json(name, text));
  } catch (const Refused& refused) {
    throw CheckpointError(fmt::format("{}: the manifest cannot be used: {}", name, refused.what()));
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(fmt::format("{}: the manifest cannot be used: {}", name, error.what()));
  }
}

}  // namespace trireme::checkpoint

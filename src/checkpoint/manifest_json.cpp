// SPDX-License-Identifier: Apache-2.0
//
// The manifest as JSON. 64-bit hashes are hexadecimal strings: JSON's numbers are doubles for most readers.
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "checkpoint/json.hpp"
#include "checkpoint/rectangles.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/manifest.hpp"

namespace trireme::checkpoint {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::int64_t most_elements = std::int64_t{1} << 53;

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::vector<std::string> hex(const std::vector<std::uint64_t>& values) {
  std::vector<std::string> texts;
  for (const std::uint64_t value : values) texts.push_back(hex(value));
  return texts;
}

Json facts_json(const Facts& facts) {
  Json object = Json::object();
  for (const auto& [key, value] : facts) object[key] = value;
  return object;
}

/// Reads with checks; what it throws has no file name yet.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void require(bool holds, const std::string& what) {
  if (!holds) throw Refused(what);
}

std::int64_t whole(const nlohmann::json& value, const char* what, std::int64_t least = 0,
                   std::int64_t most = most_elements) {
  require(value.is_number_integer(), fmt::format("{} is no whole number", what));
  const auto number = value.get<std::int64_t>();
  require(number >= least && number <= most, fmt::format("{} = {} is out of range", what, number));
  return number;
}

std::uint64_t from_hex(const nlohmann::json& value) {
  const auto text = value.get<std::string>();
  std::uint64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  require(text.size() == 16 && problem == std::errc{} && end == text.data() + text.size(), "a checksum is no hash");
  return number;
}

std::vector<std::uint64_t> hashes(const nlohmann::json& values) {
  std::vector<std::uint64_t> result;
  for (const auto& value : values) result.push_back(from_hex(value));
  return result;
}

Facts sorted_facts(const nlohmann::json& object) {
  Facts facts;
  for (const auto& [key, value] : object.items()) facts.emplace_back(key, value.get<std::string>());
  return facts;
}

/// The same of a key that may be absent: files of an earlier build lack it.
Facts facts_or_none(const nlohmann::json& json, const char* key) {
  return json.contains(key) ? sorted_facts(json.at(key)) : Facts{};
}

std::vector<PassedOver> passed_over_of(const nlohmann::json& json) {
  std::vector<PassedOver> all;
  if (!json.contains("passed_over")) return all;
  for (const auto& entry : json.at("passed_over"))
    all.push_back({.step = whole(entry.at(0), "a step"),
                   .first = whole(entry.at(1), "a sample"),
                   .end = whole(entry.at(2), "a sample")});
  return all;
}

SavedParameter parameter_of(const nlohmann::json& json) {
  SavedParameter parameter{.name = json.at(0).get<std::string>(), .shape = {}};
  double product = 1;
  for (const auto& size : json.at(1)) {
    parameter.shape.push_back(whole(size, "a size", 1));
    product *= static_cast<double>(parameter.shape.back());
  }
  require(product <= static_cast<double>(most_elements), fmt::format("{} has too many elements", parameter.name));
  require(!parameter.shape.empty() && parameter.name.find('/') == std::string::npos, "a parameter has no good name");
  return parameter;
}

/// Runs that lie within a parameter; several of them in the same columns of consecutive rows.
shard::Runs runs_of(const nlohmann::json& json, const SavedParameter& parameter) {
  const std::int64_t elements = parameter.elements();
  const std::int64_t columns = columns_of(parameter);
  shard::Runs runs{.first = whole(json.at(1), "a slice's first element", 0, elements - 1),
                   .length = whole(json.at(2), "the length of a slice's runs", 1, elements),
                   .stride = whole(json.at(3), "a slice's stride", 0, columns),
                   .count = whole(json.at(4), "a slice's number of runs", 1, elements)};
  if (runs.count == 1)
    require(runs.stride == 0 && runs.length <= elements - runs.first,
            fmt::format("a slice of {} is out of range", parameter.name));
  else
    require(runs.stride == columns && runs.first % columns + runs.length <= columns &&
                runs.count <= elements / columns - runs.first / columns,
            fmt::format("a slice of {} is out of range: its runs are not parts of its rows", parameter.name));
  return runs;
}

SavedSlice slice_of(const nlohmann::json& json, const std::vector<SavedParameter>& parameters, std::int64_t room) {
  const auto index = whole(json.at(0), "a parameter's index", 0, static_cast<std::int64_t>(parameters.size()) - 1);
  const SavedParameter& parameter = parameters[static_cast<std::size_t>(index)];
  SavedSlice slice{.parameter = static_cast<int>(index), .checksums = hashes(json.at(6))};
  slice.runs = runs_of(json, parameter);
  slice.offset = whole(json.at(5), "a slice's offset", 0, room - slice.runs.size());
  require(static_cast<std::int64_t>(slice.checksums.size()) == slice.chunks(),
          fmt::format("a slice of {} has {} checksums instead of {}", parameter.name, slice.checksums.size(),
                      slice.chunks()));
  return slice;
}

Quantity quantity_of(const std::string& dataset) {
  for (const Quantity quantity : all_quantities)
    if (dataset.starts_with(std::string(to_text(quantity)) + "/")) return quantity;
  throw Refused(fmt::format("dataset {} belongs to no known group", in_quotes(dataset)));
}

SavedFile file_of(const nlohmann::json& json, const std::vector<SavedParameter>& parameters) {
  SavedFile file{.path = json.at("path").get<std::string>(),
                 .dp_rank = static_cast<int>(whole(json.at("dp_rank"), "dp_rank", 0, 1 << 30)),
                 .tensor_rank = json.contains("tensor_rank")
                                    ? static_cast<int>(whole(json.at("tensor_rank"), "tensor_rank", 0, 1 << 20))
                                    : 0,
                 .bytes = whole(json.at("bytes"), "a file's bytes"),
                 .rest = from_hex(json.at("rest")),
                 .datasets = {}};
  require(file.path == shard_path(file.dp_rank, file.tensor_rank),
          fmt::format("the path {} is not a shard's", in_quotes(file.path)));
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
             rectangles(slice.runs, columns_of(manifest.parameters[static_cast<std::size_t>(slice.parameter)])))
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
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const SavedFile& file = manifest.files[i];
    const auto index = static_cast<std::int64_t>(i);
    require(file.dp_rank == index / mesh.tensor * manifest.ranks_per_file && file.tensor_rank == index % mesh.tensor,
            "files are out of order");
  }
}

State state_of(const nlohmann::json& json) {
  State state{.step = whole(json.at("step"), "step"),
              .updates = whole(json.at("updates"), "updates"),
              .skipped = whole(json.at("skipped"), "skipped"),
              .skipped_in_a_row = whole(json.at("skipped_in_a_row"), "skipped_in_a_row"),
              .tokens = whole(json.at("tokens"), "tokens"),
              .seed = json.at("seed").get<std::uint64_t>(),
              .learning_rate = json.at("learning_rate").get<double>(),
              .samples = whole(json.at("samples"), "samples"),
              .taken = {},
              .passed_over = passed_over_of(json),
              .data = sorted_facts(json.at("data")),
              .choices = facts_or_none(json, "choices"),
              .generation = facts_or_none(json, "generation"),
              .run_file = json.at("run_file").get<std::string>()};
  for (const auto& count : json.at("taken")) state.taken.push_back(whole(count, "taken"));
  return state;
}

Manifest manifest_of(const nlohmann::json& json) {
  require(json.at("format") == "trireme checkpoint", "it is no manifest of Trireme");
  const auto version = whole(json.at("version"), "version");
  require(version == format_version,
          fmt::format("it has format version {}, this program reads version {}", version, format_version));
  require(json.at("chunk_elements") == chunk_elements, "chunk_elements is not the format's");
  Manifest manifest{.state = state_of(json), .model = sorted_facts(json.at("model"))};
  manifest.versions = sorted_facts(json.at("versions"));
  const auto size = [&](const char* axis) {
    return static_cast<int>(whole(json.at("mesh").at(axis), axis, 1, 1 << 20));
  };
  manifest.mesh = {.replicate = size("replicate"), .shard = size("shard"), .tensor = size("tensor")};
  for (const auto& parameter : json.at("parameters")) manifest.parameters.push_back(parameter_of(parameter));
  require(!manifest.parameters.empty(), "it has no parameters");
  manifest.ranks_per_file = static_cast<int>(whole(json.at("ranks_per_file"), "ranks_per_file", 1, 1 << 20));
  for (const auto& file : json.at("files")) manifest.files.push_back(file_of(file, manifest.parameters));
  manifest.digests = hashes(json.at("digests"));
  require_files(manifest);
  require_cover(manifest);
  return manifest;
}

}  // namespace

std::string file_to_json(const SavedFile& file) {
  Json datasets = Json::array();
  for (const SavedDataset& dataset : file.datasets) {
    Json slices = Json::array();
    for (const SavedSlice& slice : dataset.slices)
      slices.push_back({slice.parameter, slice.runs.first, slice.runs.length, slice.runs.stride, slice.runs.count,
                        slice.offset, Json(hex(slice.checksums))});
    datasets.push_back({{"name", dataset.name},
                        {"elements", dataset.elements},
                        {"byte_offset", dataset.byte_offset},
                        {"slices", std::move(slices)}});
  }
  return Json{{"path", file.path},   {"dp_rank", file.dp_rank}, {"tensor_rank", file.tensor_rank},
              {"bytes", file.bytes}, {"rest", hex(file.rest)},  {"datasets", std::move(datasets)}}
      .dump();
}

std::string to_json(const Manifest& manifest, const std::vector<std::string>& files) {
  const State& state = manifest.state;
  Json parameters = Json::array();
  for (const SavedParameter& parameter : manifest.parameters)
    parameters.push_back(Json::array({parameter.name, parameter.shape}));
  Json passed_over = Json::array();
  for (const PassedOver& one : state.passed_over) passed_over.push_back(Json::array({one.step, one.first, one.end}));
  Json json{
      {"format", "trireme checkpoint"},
      {"version", format_version},
      {"step", state.step},
      {"updates", state.updates},
      {"skipped", state.skipped},
      {"skipped_in_a_row", state.skipped_in_a_row},
      {"tokens", state.tokens},
      {"seed", state.seed},
      {"learning_rate", state.learning_rate},
      {"samples", state.samples},
      {"taken", state.taken},
      {"passed_over", std::move(passed_over)},
      {"data", facts_json(state.data)},
      {"choices", facts_json(state.choices)},
      {"generation", facts_json(state.generation)},
      {"mesh",
       {{"replicate", manifest.mesh.replicate}, {"shard", manifest.mesh.shard}, {"tensor", manifest.mesh.tensor}}},
      {"ranks_per_file", manifest.ranks_per_file},
      {"model", facts_json(manifest.model)},
      {"versions", facts_json(manifest.versions)},
      {"chunk_elements", chunk_elements},
      {"parameters", std::move(parameters)},
      {"digests", hex(manifest.digests)},
      {"run_file", state.run_file}};
  std::string text = json.dump();
  text.pop_back();  // the files are JSON already
  return fmt::format("{},\"files\":[{}]}}", text, join(files, ","));
}

Manifest parse_manifest(const std::string& name, std::string_view text) {
  try {
    return manifest_of(parse_json(name, text));
  } catch (const Refused& refused) {
    throw CheckpointError(fmt::format("{}: the manifest cannot be used: {}", name, refused.what()));
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(fmt::format("{}: the manifest cannot be used: {}", name, error.what()));
  }
}

}  // namespace trireme::checkpoint

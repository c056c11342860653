// SPDX-License-Identifier: Apache-2.0
//
// Reads a manifest as untrusted input.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

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

/// Without the file's name.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void require(bool holds, const std::string& what) {
  if (!holds) throw Refused(what);
}

/// Appends the key of `node` within `json`, such as "files[3].bytes". Returns false if it is not a part of it.
bool append_key(const nlohmann::json& json, const nlohmann::json* node, std::string& key) {
  if (&json == node) return true;
  const std::size_t size = key.size();
  for (const auto& item : json.items()) {
    if (!item.value().is_structured() && &item.value() != node) continue;
    key += json.is_array() ? fmt::format("[{}]", item.key()) : fmt::format("{}{}", key.empty() ? "" : ".", item.key());
    if (append_key(item.value(), node, key)) return true;
    key.resize(size);
  }
  return false;
}

/// A value of a manifest, or one that is missing. Refers to the parsed file, where its key is looked up for a message.
class Value {
 public:
  explicit Value(const nlohmann::json& root) : root_(&root), holder_(&root), value_(&root) {}

  [[nodiscard]] bool has(const char* key) const { return is(&nlohmann::json::is_object) && value_->contains(key); }
  [[nodiscard]] Value operator[](const char* key) const {
    require_type(is(&nlohmann::json::is_object), "an object");
    const auto found = value_->find(key);
    return {*this, key, 0, found == value_->end() ? nullptr : &*found};
  }
  [[nodiscard]] Value at(std::size_t index) const {
    require_type(is(&nlohmann::json::is_array), "a list");
    return {*this, nullptr, index, index < value_->size() ? &(*value_)[index] : nullptr};
  }
  [[nodiscard]] std::vector<Value> items() const {
    require_type(is(&nlohmann::json::is_array), "a list");
    std::vector<Value> values;
    for (std::size_t i = 0; i < value_->size(); ++i) values.push_back(at(i));
    return values;
  }
  /// The texts of an object by key.
  [[nodiscard]] Metadata metadata() const {
    require_type(is(&nlohmann::json::is_object), "an object");
    Metadata metadata;
    for (const auto& [key, value] : value_->items())
      metadata.emplace_back(key, Value(*this, nullptr, 0, &value).text());
    return metadata;
  }
  [[nodiscard]] std::string text() const {
    require_type(is(&nlohmann::json::is_string), "a text");
    return value_->get<std::string>();
  }
  [[nodiscard]] double number() const {
    require_type(is(&nlohmann::json::is_number), "a number");
    return value_->get<double>();
  }
  [[nodiscard]] std::int64_t whole(std::int64_t least = 0, std::int64_t most = most_elements) const {
    const auto expected = [&] { return fmt::format("a whole number from {} to {}", least, most); };
    if (!is(&nlohmann::json::is_number_integer)) refuse(expected());
    const auto number = value_->get<std::int64_t>();
    if (number < least || number > most)
      throw Refused(fmt::format("{} = {} is out of range; expected {}", key(), io::shown(*value_), expected()));
    return number;
  }
  [[nodiscard]] std::uint64_t word() const {
    require_type(is(&nlohmann::json::is_number_unsigned), "a whole number of at least 0");
    return value_->get<std::uint64_t>();
  }
  [[nodiscard]] std::uint64_t hash() const {
    constexpr const char* expected = "a checksum of 16 hexadecimal digits";
    require_type(is(&nlohmann::json::is_string), expected);
    const auto& digits = value_->get_ref<const std::string&>();
    std::uint64_t number = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
    require_type(digits.size() == 16 && problem == std::errc{} && end == digits.data() + digits.size(), expected);
    return number;
  }
  [[nodiscard]] std::vector<std::uint64_t> hashes() const {
    std::vector<std::uint64_t> all;
    for (const Value& value : items()) all.push_back(value.hash());
    return all;
  }

 private:
  Value(const Value& holder, const char* name, std::size_t index, const nlohmann::json* value)
      : root_(holder.root_), holder_(holder.value_), name_(name), index_(index), value_(value) {}

  [[nodiscard]] bool is(bool (nlohmann::json::*type)() const noexcept) const {
    return value_ != nullptr && (value_->*type)();
  }
  [[nodiscard]] std::string key() const {
    std::string key;
    if (value_ != nullptr) {
      append_key(*root_, value_, key);
      return printable(key);
    }
    append_key(*root_, holder_, key);
    key += name_ == nullptr ? fmt::format("[{}]", index_) : fmt::format("{}{}", key.empty() ? "" : ".", name_);
    return printable(key);
  }
  void require_type(bool holds, const std::string& expected) const {
    if (!holds) refuse(expected);
  }
  [[noreturn]] void refuse(const std::string& expected) const {
    if (value_ == nullptr) throw Refused(fmt::format("{} is missing; expected {}", key(), expected));
    const std::string found =
        value_->is_structured() ? value_->is_object() ? "an object" : "a list" : io::shown(*value_);
    throw Refused(fmt::format("{} is {}; expected {}", value_ == root_ ? "its text" : key(), found, expected));
  }

  const nlohmann::json* root_;
  const nlohmann::json* holder_;
  const char* name_ = nullptr;   ///< within an object; null within a list
  std::size_t index_ = 0;        ///< within a list
  const nlohmann::json* value_;  ///< null: missing
};

/// Adds to a sum, within the range of 64 bits and of doubles.
void add(std::int64_t& sum, std::int64_t value, const char* what) {
  require(value <= most_elements - sum, fmt::format("{} are too many", what));
  sum += value;
}

/// The texts of a key that may be absent: files of an earlier build lack it.
Metadata metadata_or_none(const Value& json, const char* key) {
  return json.has(key) ? json[key].metadata() : Metadata{};
}

std::vector<SkippedSamples> skipped_samples_of(const Value& json) {
  std::vector<SkippedSamples> all;
  if (!json.has("passed_over")) return all;
  for (const Value& entry : json["passed_over"].items())
    all.push_back({.step = entry.at(0).whole(), .first = entry.at(1).whole(), .end = entry.at(2).whole()});
  return all;
}

optimizer::SpikeWindow spikes_of(const Value& json) {
  optimizer::SpikeWindow spikes;
  if (!json.has("spike_window")) return spikes;
  const Value window = json["spike_window"];
  for (const Value& loss : window["losses"].items()) spikes.losses.push_back(loss.number());
  for (const Value& norm : window["grad_norms"].items()) spikes.grad_norms.push_back(norm.number());
  require(spikes.losses.size() == spikes.grad_norms.size() && spikes.losses.size() <= optimizer::SpikeWindow::most,
          fmt::format("spike_window has {} losses and {} gradient norms instead of at most {} of each",
                      spikes.losses.size(), spikes.grad_norms.size(), optimizer::SpikeWindow::most));
  return spikes;
}

SavedParameter parameter_of(const Value& json) {
  SavedParameter parameter{.name = json.at(0).text(), .shape = {}};
  std::int64_t product = 1;
  for (const Value& size : json.at(1).items()) {
    parameter.shape.push_back(size.whole(1));
    require(!__builtin_mul_overflow(product, parameter.shape.back(), &product) && product <= most_elements,
            fmt::format("{} has too many elements", parameter.name));
  }
  require(!parameter.shape.empty() && parameter.name.find('/') == std::string::npos,
          fmt::format("the parameter {} has no shape, or a / in its name", io::in_quotes(parameter.name)));
  return parameter;
}

std::vector<SavedParameter> parameters_of(const Value& json) {
  std::vector<SavedParameter> parameters;
  std::int64_t elements = 0;
  for (const Value& parameter : json.items()) {
    parameters.push_back(parameter_of(parameter));
    add(elements, parameters.back().elements(), "the elements of all parameters");
  }
  require(!parameters.empty(), "it has no parameters");
  return parameters;
}

/// Requires that every parameter is in the list of exactly one rule.
std::vector<optimizer::UpdateRule> rules_of(const Value& json, std::size_t parameters) {
  std::vector<std::optional<optimizer::UpdateRule>> found(parameters);
  for (const optimizer::UpdateRule rule : {optimizer::UpdateRule::adamw, optimizer::UpdateRule::muon}) {
    const std::string name(to_text(rule));
    const Value of = json[name.c_str()];
    std::vector<std::string> states;
    for (const Value& state : of["states"].items()) states.push_back(state.text());
    require(std::ranges::equal(states, states_of(rule)), fmt::format("the states of {} are not the format's", name));
    for (const Value& index : of["parameters"].items()) {
      auto& entry = found[static_cast<std::size_t>(index.whole(0, static_cast<std::int64_t>(parameters) - 1))];
      require(!entry, "a parameter has two rules");
      entry = rule;
    }
  }
  std::vector<optimizer::UpdateRule> rules;
  for (const std::optional<optimizer::UpdateRule>& rule : found) {
    require(rule.has_value(), "a parameter has no rule");
    rules.push_back(*rule);
  }
  require(std::ranges::find(rules, optimizer::UpdateRule::muon) != rules.end(), "rules has no parameter of muon");
  return rules;
}

mesh::Mesh mesh_of(const Value& json) {
  mesh::Mesh mesh;
  std::int64_t ranks = 1;
  const auto axis = [&](const char* name, int& size) {
    size = static_cast<int>(json[name].whole(1, most_ranks));
    require((ranks *= size) <= most_ranks, "a mesh of that many ranks is out of range");
  };
  if (json.has("pipeline")) axis("pipeline", mesh.pipeline);
  axis("replicate", mesh.replicate);
  axis("shard", mesh.shard);
  axis("tensor", mesh.tensor);
  return mesh;
}

/// Runs within a parameter; several of them in the same columns of consecutive rows.
shard::Hyperslab hyperslab_of(const Value& json, const SavedParameter& parameter) {
  const std::int64_t elements = parameter.elements();
  const std::int64_t columns = columns_of(parameter);
  shard::Hyperslab hyperslab{.first = json.at(1).whole(0, elements - 1),
                             .length = json.at(2).whole(1, elements),
                             .stride = json.at(3).whole(0, columns),
                             .count = json.at(4).whole(1, elements)};
  if (hyperslab.count == 1)
    require(hyperslab.stride == 0 && hyperslab.length <= elements - hyperslab.first,
            fmt::format("a slice of {} is out of range", parameter.name));
  else
    require(hyperslab.stride == columns && hyperslab.first % columns + hyperslab.length <= columns &&
                hyperslab.count <= elements / columns - hyperslab.first / columns,
            fmt::format("a slice of {} is out of range: its runs are not parts of its rows", parameter.name));
  return hyperslab;
}

SavedSlice slice_of(const Value& json, const std::vector<SavedParameter>& parameters, std::int64_t room) {
  const auto index = json.at(0).whole(0, static_cast<std::int64_t>(parameters.size()) - 1);
  const SavedParameter& parameter = parameters[static_cast<std::size_t>(index)];
  SavedSlice slice{.parameter = static_cast<int>(index), .checksums = json.at(6).hashes()};
  slice.hyperslab = hyperslab_of(json, parameter);
  slice.offset = json.at(5).whole(0, room - slice.hyperslab.size());
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

SavedFile file_of(const Value& json, const mesh::Mesh& mesh, const std::vector<SavedParameter>& parameters) {
  const auto rank_or_first = [&](const char* axis) {
    return json.has(axis) ? static_cast<int>(json[axis].whole(0, 1 << 20)) : 0;
  };
  SavedFile file{.path = json["path"].text(),
                 .pipeline_rank = rank_or_first("pipeline_rank"),
                 .dp_rank = static_cast<int>(json["dp_rank"].whole(0, 1 << 30)),
                 .tensor_rank = rank_or_first("tensor_rank"),
                 .bytes = json["bytes"].whole(),
                 .rest = json["rest"].hash(),
                 .datasets = {}};
  require(file.path == shard_path(mesh, file.pipeline_rank, file.dp_rank, file.tensor_rank),
          fmt::format("the path {} is not a shard's", io::in_quotes(file.path)));
  for (const Value& entry : json["datasets"].items()) {
    SavedDataset dataset{
        .name = entry["name"].text(), .elements = entry["elements"].whole(1, file.bytes / 4), .slices = {}};
    dataset.quantity = quantity_of(dataset.name);
    dataset.byte_offset = entry["byte_offset"].whole(0, file.bytes - 4 * dataset.elements);
    for (const Value& slice : entry["slices"].items())
      dataset.slices.push_back(slice_of(slice, parameters, dataset.elements));
    file.datasets.push_back(std::move(dataset));
  }
  return file;
}

/// Requires that every element of every parameter is in exactly one slice.
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
    if (!has(manifest, static_cast<Quantity>(i / manifest.parameters.size()), i % manifest.parameters.size())) {
      require(found[i].empty(), fmt::format("{} has a state that its rule has not", parameter.name));
      continue;
    }
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

State state_of(const Value& json) {
  State state{.step = json["step"].whole(),
              .updates = json["updates"].whole(),
              .skipped = json["skipped"].whole(),
              .skipped_in_a_row = json["skipped_in_a_row"].whole(),
              .tokens = json["tokens"].whole(),
              .seed = json["seed"].word(),
              .learning_rate = json["learning_rate"].number(),
              .samples = json["samples"].whole(),
              .taken = {},
              .skipped_samples = skipped_samples_of(json),
              .run_id = json.has("run") ? json["run"].text() : "",
              .spikes = spikes_of(json),
              .data = json["data"].metadata(),
              .tuned_settings = metadata_or_none(json, "choices"),
              .generation = metadata_or_none(json, "generation"),
              .run_file = json["run_file"].text()};
  require(state.run_id.size() <= most_run_id, "the run's id is too long");
  for (const Value& count : json["taken"].items()) state.taken.push_back(count.whole());
  return state;
}

Manifest manifest_of(const Value& json) {
  require(json["format"].text() == "trireme checkpoint", "not a Trireme manifest");
  const auto version = json["version"].whole();
  require(std::ranges::find(format_versions, version) != format_versions.end(),
          fmt::format("it has format version {}, this program reads versions {}", version,
                      fmt::join(format_versions, ", ")));
  require(json["chunk_elements"].whole() == chunk_elements, "chunk_elements is not the format's");
  Manifest manifest{.state = state_of(json), .model = json["model"].metadata()};
  manifest.versions = json["versions"].metadata();
  manifest.mesh = mesh_of(json["mesh"]);
  manifest.parameters = parameters_of(json["parameters"]);
  if (version == 4) manifest.rules = rules_of(json["rules"], manifest.parameters.size());
  require(version == format_version(manifest), "its mesh is not of its format version");
  manifest.ranks_per_file = static_cast<int>(json["ranks_per_file"].whole(1, 1 << 20));
  for (const Value& file : json["files"].items())
    manifest.files.push_back(file_of(file, manifest.mesh, manifest.parameters));
  manifest.digests = json["digests"].hashes();
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
  // Among the first keys, whose values are numbers; the run file's text, an arbitrary string, follows "data".
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
    const nlohmann::json json = io::parse_json(name, text);
    return manifest_of(Value(json));
  } catch (const Refused& refused) {
    throw CheckpointError(
        fmt::format("{}: the manifest cannot be used: {}; use another checkpoint", name, printable(refused.what())));
  }
}

}  // namespace trireme::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/io/json.hpp"
#include "huggingface/generation_config.hpp"
#include "huggingface/mistakes.hpp"
#include "trireme/base/log.hpp"
#include "trireme/huggingface/hub.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t most_config_bytes = 10'000'000;
constexpr std::string_view generation_name = "generation_config.json";
constexpr std::string_view single_name = "model.safetensors";
constexpr std::string_view index_name = "model.safetensors.index.json";

std::string in(const std::string& directory, std::string_view name) { return (fs::path(directory) / name).string(); }

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The index's table tensor -> file. File names are plain names: nothing outside of the directory is ever opened.
std::map<std::string, std::string> read_weight_map(const std::string& file) {
  const json index = io::parse_json(file, io::read_text(file, most_header_bytes));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw CheckpointError(fmt::format("{}: has no table weight_map; get an intact copy", file));
  }
  std::map<std::string, std::string> map;
  for (const auto& [tensor, value] : index["weight_map"].items()) {
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    if (name.empty() || name == "." || name == ".." || fs::path(name).filename() != name ||
        name.find('\0') != std::string::npos) {
      throw CheckpointError(
          fmt::format("{}: tensor {} is in {}, which is no file name of its folder; get an intact copy", file,
                      io::in_quotes(tensor), io::in_quotes(value.dump())));
    }
    map.emplace(tensor, name);
  }
  return map;
}

}  // namespace

namespace {

/// Whether the weight files hold a head; false if there are none.
bool holds_head(const std::string& directory) {
  const auto is_head = [](const auto& entry) { return entry.first.ends_with("lm_head.weight"); };
  if (exists(in(directory, single_name)))
    return std::ranges::any_of(SafetensorsFile::open(in(directory, single_name)).tensors(), is_head);
  return exists(in(directory, index_name)) && std::ranges::any_of(read_weight_map(in(directory, index_name)), is_head);
}

/// Logs the parts of a multimodal model that are left aside; how much it is where the weights are there.
void tell_text_part(const HfConfig& config, const std::string& directory) {
  std::string aside = "all else is";
  if (exists(in(directory, single_name)) || exists(in(directory, index_name))) {
    const HfDirectory opened = HfDirectory::open(directory);
    aside = fmt::format("{} other tensors ({}) are", opened.tensors_aside(), to_text(opened.bytes_aside()));
  }
  log::info(fmt::format("{}: model_type = {} is a multimodal model: its text part is read, as {}; {} ignored",
                        directory, config.multimodal->model_type, config.model.architecture, aside));
}

}  // namespace

bool is_huggingface(const std::string& path) { return exists(in(path, "config.json")); }

HfConfig read_hf_config(const std::string& directory) {
  const std::string config = in(directory, "config.json");
  HfConfig read = parse_hf_config(io::read_text(config, most_config_bytes), config);
  if (read.tied_unsaid && holds_head(directory)) read.model.tie_embeddings = false;
  const std::string generation = in(directory, generation_name);
  if (exists(generation)) add_generation_config(io::read_text(generation, most_config_bytes), generation, read);
  return read;
}

void warn_of_unread_keys(const HfConfig& config, const std::string& directory) {
  if (config.multimodal != nullptr) tell_text_part(config, directory);
  if (config.unread_keys.empty()) return;
  log::warning(fmt::format("{}: {}: these keys are not read; if they change what the model computes, results differ",
                           in(directory, "config.json"), fmt::join(config.unread_keys, ", ")));
}

HfDirectory HfDirectory::open(const std::string& directory) {
  if (!is_huggingface(directory)) {
    throw CheckpointError(fmt::format("{}: {}; a Hugging Face directory holds config.json and {}{}", directory,
                                      exists(directory) ? "has no config.json" : "does not exist", single_name,
                                      exists(directory) ? "" : hub_download(directory)));
  }
  HfDirectory opened(directory, read_hf_config(directory));
  if (exists(in(directory, single_name))) {
    opened.open_single();
  } else if (exists(in(directory, index_name))) {
    opened.open_indexed();
  } else if (exists(in(directory, "pytorch_model.bin")) || exists(in(directory, "pytorch_model.bin.index.json"))) {
    throw CheckpointError(
        fmt::format("{}: holds pickled weights (pytorch_model.bin), which are not read; load it in transformers "
                    "and save_pretrained(..., safe_serialization=True)",
                    directory));
  } else {
    throw CheckpointError(
        fmt::format("{}: has neither {} nor {}; download the weights", directory, single_name, index_name));
  }
  if (opened.config_.multimodal != nullptr) opened.keep_text_part();
  return opened;
}

std::vector<std::string> HfDirectory::files() const {
  std::vector<std::string> paths{in(path_, "config.json")};
  if (!exists(in(path_, single_name))) paths.push_back(in(path_, index_name));
  for (const SafetensorsFile& file : files_) paths.push_back(file.path());
  return paths;
}

void HfDirectory::open_single() {
  files_.push_back(SafetensorsFile::open(in(path_, single_name)));
  for (const auto& [name, info] : files_.front().tensors()) place_of_.emplace(name, Place{.file = 0, .name = name});
}

void HfDirectory::open_indexed() {
  const std::string index = in(path_, index_name);
  const std::map<std::string, std::string> weight_map = read_weight_map(index);
  std::map<std::string, std::size_t> opened;
  Mistakes mistakes;
  for (const auto& [tensor, name] : weight_map) {
    if (opened.contains(name)) continue;
    opened.emplace(name, files_.size());
    if (exists(in(path_, name))) {
      files_.push_back(SafetensorsFile::open(in(path_, name)));
    } else {
      mistakes.add(fmt::format("{} is missing; download it", name));
    }
  }
  raise(mistakes, fmt::format("{}: not all of its files are there", index));
  for (const auto& [tensor, name] : weight_map) {
    const std::size_t file = opened.at(name);
    if (!files_[file].tensors().contains(tensor))
      mistakes.add(fmt::format("{} is not in {}", io::in_quotes(tensor), name));
    place_of_.emplace(tensor, Place{.file = file, .name = tensor});
  }
  for (const SafetensorsFile& file : files_) {
    for (const auto& [tensor, info] : file.tensors()) {
      if (!weight_map.contains(tensor))
        mistakes.add(fmt::format("{} of {} is not in the index", io::in_quotes(tensor), file.path()));
    }
  }
  raise(mistakes, fmt::format("{}: does not describe its files; get both from the same source", index));
}

void HfDirectory::keep_text_part() {
  std::map<std::string, Place, std::less<>> text;
  Mistakes mistakes;
  for (const auto& [name, place] : place_of_) {
    const auto begins = [&name = name](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::ranges::any_of(config_.multimodal->aside, begins)) {
      ++tensors_aside_;
      bytes_aside_.value += find(name)->end - find(name)->begin;
      continue;
    }
    const auto prefix = std::ranges::find_if(config_.multimodal->names, begins, &model::TextPrefix::in_files);
    if (prefix == config_.multimodal->names.end()) {
      mistakes.add(fmt::format("{} would not be used: it is neither of the text part nor of what {} adds to it",
                               io::in_quotes(name), config_.multimodal->class_name));
      continue;
    }
    const std::string own = std::string(prefix->own) + name.substr(prefix->in_files.size());
    const auto [there, added] = text.emplace(own, place);
    if (!added)
      mistakes.add(
          fmt::format("{} and {} are the same parameter", io::in_quotes(there->second.name), io::in_quotes(name)));
  }
  raise(mistakes, fmt::format("{}: its tensors are not those of the model", path_));
  place_of_ = std::move(text);
}

std::vector<std::string> HfDirectory::names() const {
  std::vector<std::string> list;
  for (const auto& [name, place] : place_of_) list.push_back(name);
  return list;
}

const TensorInfo* HfDirectory::find(std::string_view name) const {
  const auto found = place_of_.find(name);
  if (found == place_of_.end()) return nullptr;
  return &files_[found->second.file].tensors().find(found->second.name)->second;
}

std::string HfDirectory::name_in_files(std::string_view parameter) const {
  const model::Architecture& a = model::architecture(config_.model.architecture);
  const std::string_view prefix = a.optional_prefix;
  const std::string_view head = a.name_of(model::Role::head).tensor;
  const bool embeds = parameter == a.name_of(model::Role::embedding).tensor;
  if (!prefix.empty() && parameter.starts_with(prefix) && !place_of_.contains(parameter) &&
      place_of_.contains(parameter.substr(prefix.size())))
    parameter.remove_prefix(prefix.size());
  // safetensors keeps one name of tensors that share memory, which may be the head's.
  const bool by_head = config_.model.tie_embeddings && embeds && !place_of_.contains(parameter);
  return std::string(by_head && place_of_.contains(head) ? head : parameter);
}

const std::string& tensor_in_files(const model::Parameter& parameter) {
  return parameter.joint_tensor.empty() ? parameter.name : parameter.joint_tensor;
}

std::vector<std::int64_t> shape_in_files(const model::Parameter& parameter) {
  std::vector<std::int64_t> shape = parameter.full_shape();
  if (!parameter.joint_tensor.empty()) shape[0] = parameter.joint_rows;
  if (parameter.transposed_in_files) std::reverse(shape.begin(), shape.end());
  return shape;
}

void HfDirectory::read_slice(const model::Parameter& parameter, shard::Range elements, std::span<float> values) const {
  const std::string name = name_in_files(tensor_in_files(parameter));
  if (!parameter.joint_tensor.empty()) {
    const std::int64_t before = parameter.full_elements() / parameter.full_shape()[0] * parameter.rows_before;
    elements = {.begin = elements.begin + before, .end = elements.end + before};
  }
  if (!parameter.transposed_in_files) return read_slice(name, elements, values);
  const std::vector<std::int64_t> shape = parameter.full_shape();
  const std::int64_t rows = shape[0], columns = shape[1];
  const std::int64_t first_row = elements.begin / columns;
  const std::int64_t count = (elements.end + columns - 1) / columns - first_row;
  std::vector<float> run(static_cast<std::size_t>(count));
  for (std::int64_t column = 0; column < columns; ++column) {
    const std::int64_t begin = column * rows + first_row;
    read_slice(name, {.begin = begin, .end = begin + count}, run);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t element = (first_row + i) * columns + column;
      if (element >= elements.begin && element < elements.end)
        values[static_cast<std::size_t>(element - elements.begin)] = run[static_cast<std::size_t>(i)];
    }
  }
}

void HfDirectory::read_slice(std::string_view name, shard::Range elements, std::span<float> values) const {
  const auto found = place_of_.find(name);
  if (found == place_of_.end()) {
    throw CheckpointError(
        fmt::format("{}: has no tensor {}; check that the weights belong to this model", path_, io::in_quotes(name)));
  }
  files_[found->second.file].read_fp32(found->second.name, elements, values);
  if (find(name)->scaled()) scale_blocks(name, elements, values);
}

std::string HfDirectory::unreadable(std::string_view name) const {
  const TensorInfo& tensor = *find(name);
  if (tensor.readable()) return "";
  if (!tensor.scaled() || !config_.fp8_blocks)
    return fmt::format("{} has dtype {}; convert it to F32, BF16 or F16", name, tensor.dtype);
  const std::string scales = std::string(name) + std::string(scale_ending);
  const TensorInfo* blocks = find(scales);
  if (blocks == nullptr) return fmt::format("{} has dtype {}, but there is no {}", name, tensor.dtype, scales);
  const auto count = [](std::int64_t size) { return (size + fp8_block - 1) / fp8_block; };
  const bool fits = tensor.shape.size() == 2 &&
                    blocks->shape == std::vector{count(tensor.shape[0]), count(tensor.shape[1])} &&
                    blocks->dtype == "F32";
  if (fits) return "";
  return fmt::format("{} has dtype {} and shape {}; its blocks of {} x {} elements have an F32 scale each of {}",
                     scales, blocks->dtype, blocks->shape, fp8_block, fp8_block, fmt::join(tensor.shape, " x "));
}

void HfDirectory::scale_blocks(std::string_view name, shard::Range elements, std::span<float> values) const {
  if (const std::string wrong = unreadable(name); !wrong.empty())
    throw CheckpointError(fmt::format("{}: {}", path_, wrong));
  const TensorInfo& blocks = *find(std::string(name) + std::string(scale_ending));
  std::vector<float> scales(static_cast<std::size_t>(blocks.elements()));
  read_slice(std::string(name) + std::string(scale_ending), {.begin = 0, .end = blocks.elements()}, scales);
  const std::int64_t columns = find(name)->shape[1];
  for (std::int64_t element = elements.begin; element < elements.end; ++element) {
    const std::int64_t row = element / columns, column = element % columns;
    values[static_cast<std::size_t>(element - elements.begin)] *=
        scales[static_cast<std::size_t>(row / fp8_block * blocks.shape[1] + column / fp8_block)];
  }
}

}  // namespace trireme::huggingface

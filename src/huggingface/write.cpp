// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "huggingface/config_text.hpp"
#include "huggingface/export_directory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/log.hpp"
#include "trireme/huggingface/huggingface.hpp"

namespace trireme::huggingface {

namespace {

/// The parameters of one weight file, in the model's order.
struct WeightFile {
  std::vector<model::ParamRef> parameters;
  std::vector<TensorSpec> tensors;
  std::int64_t bytes = 0;
};

std::vector<WeightFile> split_into_files(const model::Model& model, const HfWriteOptions& options) {
  std::vector<WeightFile> parts(1);
  for (int b = 0; b < model.param_blocks(); ++b) {
    const model::ParameterBlock& block = model[ParamBlock{b}];
    for (int i = 0; i < static_cast<int>(block.parameters.size()); ++i) {
      const model::Parameter& parameter = block.parameters[static_cast<std::size_t>(i)];
      const model::ParamRef ref{.block = {b}, .index = i};
      if (parameter.rows_before > 0) {  // after those of the same tensor
        parts.back().parameters.push_back(ref);
        continue;
      }
      const TensorSpec tensor{.name = tensor_in_files(parameter),
                              .shape = shape_in_files(parameter),
                              // Its steps would vanish in bf16: classes of transformers keep it in fp32, too.
                              .dtype = parameter.role == model::Role::router_bias ? DType::fp32 : options.dtype};
      const std::int64_t bytes = tensor.elements() * size_of(tensor.dtype);
      if (parts.back().bytes > 0 && parts.back().bytes + bytes > options.most_file_bytes.value) parts.emplace_back();
      parts.back().parameters.push_back(ref);
      parts.back().tensors.push_back(tensor);
      parts.back().bytes += bytes;
    }
  }
  return parts;
}

std::string file_name(std::size_t part, std::size_t parts) {
  return parts == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", part + 1, parts);
}

std::string index_text(const std::vector<WeightFile>& parts) {
  nlohmann::ordered_json index;
  std::int64_t total = 0;
  for (const WeightFile& part : parts) total += part.bytes;
  index["metadata"]["total_size"] = total;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    for (const TensorSpec& tensor : parts[p].tensors) index["weight_map"][tensor.name] = file_name(p, parts.size());
  }
  return index.dump(2) + "\n";
}

/// `values` [rows, columns] as [columns, rows].
std::vector<float> transposed(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
  std::vector<float> out(values.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      out[static_cast<std::size_t>(c * rows + r)] = values[static_cast<std::size_t>(r * columns + c)];
  return out;
}

void write_part(const std::string& path, const model::Model& model, const WeightFile& part,
                const ParameterProvider& provider) {
  SafetensorsWriter writer(path, part.tensors);
  for (const model::ParamRef& ref : part.parameters) {
    const std::span<const float> values = provider(ref);
    const model::Parameter& parameter = model[ref];
    invariant(static_cast<std::int64_t>(values.size()) == parameter.full_elements(),
              "an exported parameter is given as a whole");
    if (parameter.transposed_in_files)
      writer.append(transposed(values, parameter.full_shape()[0], parameter.full_shape()[1]));
    else
      writer.append(values);
  }
  writer.finish();
}

}  // namespace

void check_export_target(const std::string& directory, bool overwrite) { ExportDirectory::check(directory, overwrite); }

void write_huggingface(const std::string& directory, const model::Model& model, const HfWriteOptions& options,
                       const ParameterProvider& provider) {
  ExportDirectory::check(directory, options.overwrite);
  if (model.sizes.hidden % model.sizes.heads != 0) {
    log::warning(
        fmt::format("{}: transformers 5 refuses models whose hidden size ({}) is not a multiple of their heads ({})",
                    directory, model.sizes.hidden, model.sizes.heads));
  }
  ExportDirectory target(directory);
  const std::vector<WeightFile> parts = split_into_files(model, options);
  io::write_text(target.file("config.json"), hf_config_text(model, options));
  io::write_text(target.file("generation_config.json"), hf_generation_config_text(options));
  for (const auto& [name, text] : options.tokenizer_files) {
    std::error_code ignored;  // then writing fails
    io::create_directories(std::filesystem::path(target.file(name)).parent_path(), ignored);
    io::write_text(target.file(name), text);
  }
  for (std::size_t p = 0; p < parts.size(); ++p)
    write_part(target.file(file_name(p, parts.size())), model, parts[p], provider);
  if (parts.size() > 1) io::write_text(target.file("model.safetensors.index.json"), index_text(parts));
  target.publish();
}

}  // namespace trireme::huggingface

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>

#include "base/io/json.hpp"
#include "huggingface/mistakes.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface {

namespace {

constexpr std::string_view head_name = "lm_head.weight";
constexpr std::int64_t compared_elements = 1 << 20;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Why the model has no use for a tensor of this name.
std::string_view why_unused(std::string_view name) {
  if (contains(name, "q_norm") || contains(name, "k_norm")) return "query/key norms are not supported";
  if (name.ends_with(".bias")) return "biases are not supported";
  if (contains(name, ".experts.")) return "mixtures of experts are not supported";
  if (contains(name, "lora_")) return "adapters are not supported, merge them first";
  if (name.ends_with(".weight_scale") || name.ends_with(scale_ending) || contains(name, ".qweight"))
    return "quantized weights are not supported";
  return "the model has no such parameter";
}

/// The number of the layer that a tensor is of; -1: of none.
std::int64_t layer_of(std::string_view name) {
  constexpr std::string_view prefix = "model.layers.";
  std::int64_t layer = -1;
  if (name.starts_with(prefix)) std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
  return layer;
}

std::string missing_remedy(std::string_view name) {
  return name == head_name ? "set tie_word_embeddings to true in config.json if it is the embedding"
                           : "download the weights again";
}

}  // namespace

bool HfDirectory::tied_head_equals_embedding(std::string_view embedding_name) const {
  const TensorInfo* head = find(head_name);
  const TensorInfo* embedding = find(embedding_name);
  if (embedding == nullptr || head->shape != embedding->shape || !head->readable() || !embedding->readable())
    return false;
  std::vector<float> a(static_cast<std::size_t>(std::min(compared_elements, head->elements())));
  std::vector<float> b(a.size());
  for (std::int64_t begin = 0; begin < head->elements(); begin += compared_elements) {
    const shard::Range range{.begin = begin, .end = std::min(begin + compared_elements, head->elements())};
    const std::span left = std::span(a).first(static_cast<std::size_t>(range.size()));
    const std::span right = std::span(b).first(left.size());
    read_slice(head_name, range, left);
    read_slice(embedding_name, range, right);
    if (!std::equal(left.begin(), left.end(), right.begin())) return false;
  }
  return true;
}

/// Throws CheckpointError if a program that wrapped the model has put its prefix before all names.
void HfDirectory::refuse_wrapped_names(std::string_view embedding) const {
  constexpr auto wrappers =
      std::to_array<std::pair<std::string_view, std::string_view>>({{"_orig_mod.", "torch.compile"},
                                                                    {"module.", "DistributedDataParallel or DeepSpeed"},
                                                                    {"base_model.model.", "PEFT"},
                                                                    {"_fsdp_wrapped_module.", "FSDP"}});
  for (const auto& [name, place] : place_of_) {
    std::string_view rest = name;
    std::vector<std::string_view> by;
    for (bool found = true; found;) {
      found = false;
      for (const auto& [prefix, program] : wrappers)
        if (rest.starts_with(prefix)) {
          rest.remove_prefix(prefix.size());
          by.push_back(program);
          found = true;
        }
    }
    if (by.empty() || rest != embedding) continue;
    throw CheckpointError(fmt::format("{}: the names of its tensors begin with \"{}\", which {} puts before them; {}",
                                      path_, name.substr(0, name.size() - rest.size()), fmt::join(by, " and "),
                                      by.back() == "PEFT"
                                          ? "merge the adapter (merge_and_unload) and save the model that it gives"
                                          : "save the model that was wrapped, or rename the tensors"));
  }
}

void HfDirectory::check(const model::Model& model) const {
  Mistakes mistakes;
  const model::Architecture& a = model::architecture(model.architecture);
  const std::string_view embedding = a.name_of(model::Role::embedding).tensor;
  refuse_wrapped_names(embedding);
  std::set<std::string, std::less<>> used;
  for (const model::ParameterBlock& block : model.parameter_blocks) {
    for (const model::Parameter& parameter : block.parameters) {
      const std::string& own = tensor_in_files(parameter);
      const std::string name = name_in_files(own);
      if (!used.insert(name).second) continue;  // of several parameters
      const TensorInfo* tensor = find(name);
      const std::vector<std::int64_t> shape = shape_in_files(parameter);
      if (tensor == nullptr) {
        mistakes.add(fmt::format("{} is missing; {}", own, missing_remedy(own)));
      } else if (tensor->shape != shape) {
        mistakes.add(fmt::format("{} has shape {}, the model has {}; check the sizes", own, tensor->shape, shape));
      } else if (const std::string wrong = unreadable(name); !wrong.empty()) {
        mistakes.add(wrong);
      } else if (tensor->scaled()) {
        used.insert(name + std::string(scale_ending));
      }
    }
  }
  std::map<std::string_view, std::vector<std::string>> unused;  // by reason
  for (const auto& [name, place] : place_of_) {
    const bool buffer = std::any_of(a.buffers.begin(), a.buffers.end(),
                                    [&name = name](std::string_view ending) { return name.ends_with(ending); });
    const bool further = a.predicts_further && layer_of(name) >= model.sizes.layers;
    if (used.contains(name) || buffer || further) continue;
    if (name == head_name && model.sizes.tied) {
      if (tied_head_equals_embedding(name_in_files(embedding))) continue;
      mistakes.add(fmt::format(
          "{} differs from {} though the embeddings are tied; set tie_word_embeddings to false in config.json "
          "to use it, or remove the tensor",
          head_name, embedding));
      continue;
    }
    unused[why_unused(name)].push_back(name);
  }
  for (const auto& [reason, names] : unused) {
    mistakes.add(fmt::format("{} would not be used{}: {}", io::in_quotes(names.front()),
                             names.size() == 1 ? "" : fmt::format(", and {} like it", names.size() - 1), reason));
  }
  raise(mistakes, fmt::format("{}: its tensors are not those of the model", path_));
}

}  // namespace trireme::huggingface

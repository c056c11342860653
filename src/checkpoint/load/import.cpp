// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/checkpoint/model_metadata.hpp"
#include "trireme/tokenizer/files.hpp"
#include "trireme/tokenizer/library.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The blocks of an untrained model, one at a time on request; moments are zero.
class Blocks {
 public:
  Blocks(const Weights& weights, const model::Model& model) : weights_(weights), model_(model), layout_(model, 1) {}

  [[nodiscard]] Shards shards() {
    return {.model = model_,
            .layout = layout_,
            .mesh = {},
            .at = {},
            .values = [this](Quantity quantity, ParamBlock block) {
              return quantity == Quantity::parameter ? parameters(block) : zeros(block);
            }};
  }

 private:
  std::span<float> zeros(ParamBlock block) {
    zeros_.resize(std::max(zeros_.size(), elements(block)));
    return std::span(zeros_).first(elements(block));
  }
  std::span<float> parameters(ParamBlock block) {
    if (now_ == block) return values_;
    now_.reset();
    values_.assign(elements(block), 0.0F);
    for (const shard::Slice& slice : layout_[block].slices(0)) {
      const model::Parameter& parameter = model_[{block, slice.parameter}];
      const std::span values = std::span(values_).subspan(static_cast<std::size_t>(slice.offset),
                                                          static_cast<std::size_t>(slice.elements.size()));
      weights_.read(parameter, slice.elements, values);
      warn_of_nonfinite(parameter.name, values);
    }
    now_ = block;
    return values_;
  }
  void warn_of_nonfinite(const std::string& name, std::span<const float> values) {
    const auto count = std::ranges::count_if(values, [](float value) { return !std::isfinite(value); });
    if (count == 0 || !warned_.insert(name).second) return;
    log::warning(
        fmt::format("{}: {} of {} values are not finite: every loss of this model will be nan; get intact weights, or "
                    "import an earlier checkpoint",
                    name, count, values.size()));
  }
  [[nodiscard]] std::size_t elements(ParamBlock block) const {
    return static_cast<std::size_t>(layout_[block].shard_elements());
  }

  const Weights& weights_;
  const model::Model& model_;
  shard::Layout layout_;
  std::optional<ParamBlock> now_;  ///< whose parameters are in values_
  std::vector<float> values_, zeros_;
  std::set<std::string> warned_;  ///< parameters
};

/// With the fingerprint and the libraries of the tokenizer, where it can be read here.
huggingface::HfWriteOptions with_fingerprint(huggingface::HfWriteOptions options) {
  if (options.tokenizer.empty() || !options.tokenizer_fingerprint.empty()) return options;
  try {
    options.tokenizer_fingerprint = tokenizer::fingerprint(options.tokenizer);
    if (options.tokenizer_library.empty()) options.tokenizer_library = tokenizer::library_of(options.tokenizer);
  } catch (const DataError&) {  // of a kind that is not supported: refused if it is used
  }
  return options;
}

}  // namespace

Saved import_weights(const mpi::Communicator& alone, const Weights& from, const std::string& path) {
  invariant(alone.size() == 1, "one rank imports");
  std::error_code error;
  if (fs::exists(path, error))
    throw CheckpointError(fmt::format("{}: exists already; give another path, or remove it", path));
  const model::Model model = model::build(from.model());
  from.check(model);
  Blocks blocks(from, model);
  State state;
  state.generation = generation_metadata(with_fingerprint(from.generation()));
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path target = whole.has_filename() ? whole : whole.parent_path();
  return save(alone, blocks.shards(), state,
              {.directory = target.parent_path().string(), .name = target.filename().string()});
}

}  // namespace trireme::checkpoint

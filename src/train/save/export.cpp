// SPDX-License-Identifier: Apache-2.0
#include "train/save/export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "trireme/base/io/remove_tree.hpp"
#include "trireme/base/log.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/model/tensor_plan.hpp"
#include "trireme/tokenizer/files.hpp"
#include "trireme/tokenizer/library.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::train {
namespace {

/// Gathers block after block as their parameters are requested, in the whole model's order.
class Gatherer {
 public:
  explicit Gatherer(Job& job) : job_(job) {}

  std::span<const float> operator()(model::ParamRef ref) {
    if (now_ != ref.block) gather(ref.block);
    const shard::Range range = job_.whole_layout()[ref.block].range(ref.index);
    const model::Parameter& parameter = job_.whole_model()[ref];
    if (!parameter.partition)
      return {all_.const_data_ptr<float>() + range.begin, static_cast<std::size_t>(range.size())};
    parameter_.assign(static_cast<std::size_t>(parameter.full_elements()), 0.0F);
    for (int rank = 0; rank < job_.mesh().tensor; ++rank) {
      const float* held = all_.const_data_ptr<float>() + rank * all_.size(1) + range.begin;
      for (const model::Extent& run : model::extents(model::as_held_by(parameter, rank), 0, range.size()))
        std::copy_n(held + run.held, run.count, parameter_.begin() + run.whole);
    }
    return parameter_;
  }

  /// Takes part in the remaining gathers, which other ranks need.
  void skip_the_rest() {
    for (int b = now_ ? now_->value + 1 : 0; b < job_.whole_model().param_blocks(); ++b) gather(ParamBlock{b});
  }

 private:
  void gather(ParamBlock block) {
    all_.reset();
    all_ = job_.gather_masters(block);
    now_ = block;
  }

  Job& job_;
  std::optional<ParamBlock> now_;
  at::Tensor all_;                ///< the block as every tensor rank holds it
  std::vector<float> parameter_;  ///< a whole one, put together
};

/// Writes the same file for any distribution of experts over ranks: parameters in the order of the undivided model,
/// which requests block after block as well.
void write_undivided(Job& job, const std::string& directory, const huggingface::HfWriteOptions& options,
                     Gatherer& gatherer) {
  std::map<std::string_view, model::ParamRef> places;
  const model::Model& divided = job.whole_model();
  for (int b = 0; b < divided.param_blocks(); ++b)
    for (int i = 0; i < static_cast<int>(divided[ParamBlock{b}].parameters.size()); ++i) {
      const model::ParamRef ref{.block = ParamBlock{b}, .index = i};
      places[divided[ref].name] = ref;
    }
  const model::Model undivided = model::build(job.config().model);
  huggingface::write_huggingface(directory, undivided, options,
                                 [&](model::ParamRef ref) { return gatherer(places.at(undivided[ref].name)); });
}

}  // namespace

void remove_unfinished_exports(const std::string& output) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(output, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(".export-step-") || !name.ends_with(".partial")) continue;
    std::error_code refused;
    io::remove_tree(it->path(), refused);
    log::info(fmt::format("{}: {}, an earlier job ended while it was at work on it", it->path().string(),
                          refused ? "cannot be removed (" + refused.message() + ")" : "removed"));
  }
}

huggingface::HfWriteOptions export_options(const config::RunConfig& config) {
  huggingface::HfWriteOptions options{.dtype = config.precision.compute,
                                      .max_position_embeddings = config.data.seq_len};
  options.tokenizer = tokenizer::absolute_spec(config.data.tokenizer);
  if (!config.data.tokenizer.empty()) {
    const auto tokenizer = tokenizer::make_tokenizer(config.data.tokenizer);
    options.tokenizer_fingerprint = tokenizer->definition();
    options.tokenizer_library = tokenizer::library_of(config.data.tokenizer);
    options.eos_token_ids = {tokenizer->document_end()};
    if (const auto begin = tokenizer->document_begin(); begin.size() == 1)
      options.bos_token_id = begin.front();
    else if (const auto named = tokenizer->bos_token())
      options.bos_token_id = *named;
  }
  if (config.data.document_end) options.eos_token_ids = {*config.data.document_end};
  return options;
}

huggingface::HfWriteOptions with_given(huggingface::HfWriteOptions options, const huggingface::HfWriteOptions& given) {
  options.max_position_embeddings = std::max(options.max_position_embeddings, given.max_position_embeddings);
  if (given.bos_token_id) options.bos_token_id = given.bos_token_id;
  for (const std::int64_t id : given.eos_token_ids)
    if (std::ranges::find(options.eos_token_ids, id) == options.eos_token_ids.end())
      options.eos_token_ids.push_back(id);
  options.kept = given.kept;
  options.kept_generation = given.kept_generation;
  return options;
}

huggingface::HfWriteOptions export_with_tokenizer(const config::RunConfig& config) {
  huggingface::HfWriteOptions options = export_options(config);
  options.overwrite = true;
  options.tokenizer_files = tokenizer::export_files(options.tokenizer, options.tokenizer_library);
  return options;
}

void export_huggingface(Job& job, const std::string& directory, const huggingface::HfWriteOptions& options) {
  std::exception_ptr failure;
  if (job.at() == mesh::Coordinates{}) {
    Gatherer gatherer(job);
    try {
      if (model::divides_experts(job.whole_model()))
        write_undivided(job, directory, options, gatherer);
      else
        huggingface::write_huggingface(directory, job.whole_model(), options, std::ref(gatherer));
    } catch (const std::exception&) {
      failure = std::current_exception();
      gatherer.skip_the_rest();
    }
  } else if (job.at().replicate == 0) {  // the other ranks of the first replica take part in rank 0's gathers
    for (int b = 0; b < job.whole_model().param_blocks(); ++b) (void)job.gather_masters(ParamBlock{b});
  }
  job.barrier();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace trireme::train

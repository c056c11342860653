// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/tuned_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "train/setup/gemm.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/config/names.hpp"
#include "trireme/kernels/attention_library.hpp"
#include "trireme/kernels/gemm_library.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::train {
namespace {

using kernels::GemmLibrary;

constexpr const char* gemm_key = "gemm";
constexpr const char* attention_key = "attention";  ///< of runs on GPUs

bool run_here(const kernels::GemmChoice::Products& products, at::ScalarType type) {
  return kernels::runs_here(products.forward, type) && kernels::runs_here(products.backward_input, type) &&
         kernels::runs_here(products.backward_weight, type);
}

bool run_here(const kernels::GemmChoice::Layers& layers, at::ScalarType type) {
  return run_here(layers.wide, type) && run_here(layers.narrow, type);
}

/// The choice in `text` if this CPU can run it.
std::optional<kernels::GemmChoice> usable(const std::string& text) {
  try {
    const kernels::GemmChoice choice = kernels::parse_gemm_choice(text);
    const bool all = run_here(choice.fp32, at::kFloat) && run_here(choice.bf16, at::kBFloat16) &&
                     (!choice.pairs || kernels::can_multiply_pairs());
    return all ? std::optional(choice) : std::nullopt;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::string value_of(const checkpoint::Metadata& metadata, const std::string& key) {
  for (const auto& [name, value] : metadata)
    if (name == key) return value;
  return "";
}

/// The newest complete checkpoint that a run resumes from; "" where it starts over.
std::string newest(const config::Checkpoint& options) {
  if (options.resume == "none") return "";
  if (options.resume != "auto") return options.resume;
  const auto found = checkpoint::list_checkpoints(options.directory);
  return found.empty() ? "" : found.front().path;
}

}  // namespace

checkpoint::Metadata current_tuned_settings(int threads) {
  checkpoint::Metadata metadata{
      {gemm_key, kernels::to_text(kernels::gemm_choice())}, {"cpu", cpu_name()}, {"threads", std::to_string(threads)}};
  if (kernels::attention_was_chosen())
    metadata.emplace_back(attention_key, std::string(kernels::to_text(kernels::attention_library())));
  return metadata;
}

std::vector<std::string> restore_tuned_settings(const mpi::Communicator& world, const checkpoint::Metadata& saved,
                                                int threads) {
  if (saved.empty()) return {};
  const auto choice = usable(value_of(saved, gemm_key));
  if (!mpi::any_rank(world, !choice)) kernels::set_gemm_choice(*choice);
  const std::string attention = value_of(saved, attention_key);
  if (kernels::attention_was_chosen() && !attention.empty())
    kernels::set_attention_library(kernels::parse_attention_library(attention));
  checkpoint::Metadata then = saved;
  for (auto& [key, value] : then)
    if (choice && key == gemm_key) value = kernels::to_text(*choice);  // older texts end before "pairs"
  return checkpoint::differences(then, current_tuned_settings(threads));
}

std::optional<config::Sync> saved_policy(const config::RunConfig& config, const config::Resolved& mesh) {
  if (config.sync.policy != config::SyncPolicy::automatic) return std::nullopt;
  try {
    const std::string path = newest(config.checkpoint);
    if (path.empty()) return std::nullopt;
    const checkpoint::Manifest manifest = checkpoint::open_checkpoint(path);
    const config::RunConfig saved = config::parse_run_file(manifest.state.run_file, checkpoint::index_path(path));
    const bool same = manifest.mesh == mesh && saved.batch.global == config.batch.global &&
                      saved.batch.micro == config.batch.micro && saved.memory.budget == config.memory.budget &&
                      saved.precision.compute == config.precision.compute &&
                      saved.precision.fp8 == config.precision.fp8;
    return same ? std::optional(saved.sync) : std::nullopt;
  } catch (const io::ReadError&) {
    throw;
  } catch (const Error&) {
    return std::nullopt;  // reported where the checkpoint is loaded
  }
}

}  // namespace trireme::train

// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/choices.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/file.hpp"
#include "trireme/comm/gather.hpp"
#include "trireme/config/names.hpp"
#include "trireme/kernels/attention_library.hpp"
#include "trireme/kernels/gemm_library.hpp"
#include "trireme/train/gemm.hpp"

namespace trireme::train {
namespace {

using kernels::GemmLibrary;

constexpr const char* gemm_key = "gemm";
constexpr const char* attention_key = "attention";  ///< of runs on GPUs

void try_out(const kernels::GemmChoice::Products& products, at::ScalarType type) {
  const at::Tensor x = at::ones({4, 8}, type);
  const at::Tensor w = at::ones({6, 8}, type);
  const at::Tensor d_y = at::ones({4, 6}, type);
  (void)kernels::linear(products.forward, x, w);
  (void)kernels::linear_backward_input(products.backward_input, d_y, w);
  kernels::linear_backward_weight(products.backward_weight, d_y, x,
                                  {.tensor = at::empty({6, 8}, at::kFloat), .accumulate = false});
}

/// The choice in `text` if this CPU can run it.
std::optional<kernels::GemmChoice> usable(const std::string& text) {
  try {
    const kernels::GemmChoice choice = kernels::parse_gemm_choice(text);
    try_out(choice.fp32, at::kFloat);
    try_out(choice.bf16, at::kBFloat16);
    return choice;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string value_of(const checkpoint::Facts& facts, const std::string& key) {
  for (const auto& [name, value] : facts)
    if (name == key) return value;
  return "";
}

/// The newest complete checkpoint that a run goes on from; "" where it begins anew.
std::string newest(const config::Checkpoint& options) {
  if (options.resume == "none") return "";
  if (options.resume != "auto") return options.resume;
  const auto found = checkpoint::list_checkpoints(options.directory);
  return found.empty() ? "" : found.front().path;
}

}  // namespace

checkpoint::Facts choices_in_force(int threads) {
  checkpoint::Facts facts{
      {gemm_key, kernels::to_text(kernels::gemm_choice())}, {"cpu", cpu_name()}, {"threads", std::to_string(threads)}};
  if (kernels::attention_was_chosen())
    facts.emplace_back(attention_key, std::string(kernels::to_text(kernels::attention_library())));
  return facts;
}

std::vector<std::string> take_choices(const comm::Communicator& world, const checkpoint::Facts& saved, int threads) {
  if (saved.empty()) return {};
  const auto choice = usable(value_of(saved, gemm_key));
  if (!comm::any_rank(world, !choice)) kernels::set_gemm_choice(*choice);
  const std::string attention = value_of(saved, attention_key);
  if (kernels::attention_was_chosen() && !attention.empty())
    kernels::set_attention_library(kernels::parse_attention_library(attention));
  return checkpoint::differences(saved, choices_in_force(threads));
}

std::optional<config::Sync> saved_policy(const config::RunConfig& config, const config::Resolved& mesh) {
  if (config.sync.policy != config::SyncPolicy::automatic) return std::nullopt;
  try {
    const std::string path = newest(config.checkpoint);
    if (path.empty()) return std::nullopt;
    const checkpoint::Manifest manifest = checkpoint::open_checkpoint(path);
    const config::RunConfig saved = config::parse_run_file(manifest.state.run_file, checkpoint::index_path(path));
    const bool same = manifest.mesh == mesh::Mesh{mesh.replicate, mesh.shard, mesh.tensor} &&
                      saved.batch.global == config.batch.global && saved.batch.micro == config.batch.micro &&
                      saved.memory.budget == config.memory.budget &&
                      saved.precision.compute == config.precision.compute;
    return same ? std::optional(saved.sync) : std::nullopt;
  } catch (const checkpoint::ReadError&) {
    throw;
  } catch (const Error&) {
    return std::nullopt;  // said where the checkpoint is loaded
  }
}

}  // namespace trireme::train

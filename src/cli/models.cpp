// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "cli/commands.hpp"
#include "trireme/base/text.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::cli {
namespace {

/// What the run file may set, and what the family always has.
std::string options_of(const model::Architecture& a) {
  std::vector<std::string> list;
  const model::Decoder& d = a.decoder;
  if (d.learned_positions) list.emplace_back("learned positions");
  if (d.norm == model::NormKind::layer) list.emplace_back("LayerNorm");
  if (d.qk_norm == model::QkNorm::head) list.emplace_back("norm of queries and keys");
  if (d.qk_norm == model::QkNorm::width) list.emplace_back("norm of queries and keys over all heads");
  if (d.post_norm) list.emplace_back(d.pre_norm ? "norms before and behind branches" : "norms behind branches");
  if (d.qkv_bias) list.emplace_back(d.o_bias ? "biases" : "biases of q, k and v");
  if (a.expresses(&config::Model::attention_bias)) list.emplace_back("attention_bias");
  if (a.expresses(&config::Model::mlp_bias)) list.emplace_back("mlp_bias");
  if (a.windows != model::Windows::none) list.emplace_back("sliding_window");
  if (a.windows == model::Windows::layers || a.windows == model::Windows::switched) list.emplace_back("layer_types");
  if (a.skips_rope) list.emplace_back("no_rope_interval");
  if (!d.learned_positions) list.emplace_back("rope_scaling");
  return join(list, ", ");
}

int models() {
  for (const model::Architecture& a : model::architectures())
    fmt::print("{:<10} {:<22} {}\n{:>33} {}\n", a.name, a.class_name, a.models, "", options_of(a));
  fmt::print(
      "\nThe columns are model.architecture, the class in transformers, and whose models; below, what the family has "
      "and\n"
      "what [model] may set. rope_scaling is of type llama3, linear or yarn. A config.json of anything else is refused "
      "by\n"
      "its keys: other model_types, mixtures of experts, quantized weights, softcaps, partial\n"
      "rotation, dynamic and longrope RoPE. See docs/models.md.\n");
  return 0;
}

}  // namespace

void add_models(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("models", "List the model families that can be trained, imported and exported.");
  command->footer("Example:\n  trireme models");
  command->callback([&chosen] { chosen = models; });
}

}  // namespace trireme::cli

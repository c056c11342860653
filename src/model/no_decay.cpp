// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/no_decay.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::model {

void check_no_decay(const Model& model, const std::vector<std::string>& no_decay,
                    const std::vector<std::string>& defaults) {
  const auto fits = [&](const std::string& glob) {
    return std::ranges::any_of(model.parameter_blocks, [&](const ParameterBlock& block) {
      return std::ranges::any_of(block.parameters,
                                 [&](const Parameter& parameter) { return glob_match(glob, parameter.name); });
    });
  };
  Mistakes mistakes;
  for (const std::string& glob : no_decay)
    if (std::ranges::find(defaults, glob) == defaults.end() && !fits(glob))
      mistakes.add(
          fmt::format("optimizer.no_decay: \"{}\" fits no parameter; correct or remove it. Names are those of Hugging "
                      "Face, such as {}",
                      glob, model.parameter_blocks.back().parameters.front().name));
  mistakes.raise("optimizer.no_decay does not fit the model");
}

void check_groups(const Model& model, const std::vector<config::ParameterGroup>& groups) {
  std::vector<std::string> names;
  for (const ParameterBlock& block : model.parameter_blocks)
    for (const Parameter& parameter : block.parameters) names.push_back(parameter.name);
  Mistakes mistakes;
  for (const config::ParameterGroup& group : groups) {
    const auto fits = [&](const std::string& glob) {
      return std::ranges::any_of(names, [&](const std::string& name) { return glob_match(glob, name); });
    };
    for (const std::string& glob : group.names)
      if (!fits(glob))
        mistakes.add(
            fmt::format("optimizer.groups: \"{}\" fits no parameter, or only parameters of earlier groups; correct or "
                        "remove it. Names are those of Hugging Face, such as {}",
                        glob, model.parameter_blocks.back().parameters.front().name));
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::any_of(group.names, [&](const std::string& glob) { return glob_match(glob, name); });
    });
  }
  mistakes.raise("optimizer.groups do not fit the model");
}

}  // namespace trireme::model

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

}  // namespace trireme::model

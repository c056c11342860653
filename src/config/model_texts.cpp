// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/model_texts.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "config/toml.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/options.hpp"

namespace trireme::config {

namespace {

constexpr std::string_view section = "model";

bool describes_the_model(const Option& option) {
  constexpr std::array of_first_values = {"init", "init_std", "from"};
  return option.section == section &&
         std::find(of_first_values.begin(), of_first_values.end(), option.key) == of_first_values.end();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> model_texts(const Model& model) {
  RunConfig config;
  config.model = model;
  std::vector<std::pair<std::string, std::string>> texts;
  for (const Option& option : options()) {
    if (!describes_the_model(option)) continue;
    Printed text = option.print(config);
    if (!text) continue;
    if (option.any_text) text = text->substr(1, text->size() - 2);  // without its quotes
    texts.emplace_back(option.name(), *text);
  }
  return texts;
}

Expected read_model_text(const std::string& name, const std::string& text, Model& model) {
  for (const Option& option : options()) {
    if (!describes_the_model(option) || option.name() != name) continue;
    RunConfig config;
    config.model = std::move(model);
    Expected expected;
    try {
      Value value{.data = text, .place = {}};
      if (!option.any_text) value = read_override(name + "=" + text).value;
      expected = option.read(value, config);
    } catch (const ConfigError& error) {
      expected = error.what();
    }
    model = std::move(config.model);
    return expected;
  }
  return "no key of [model]";
}

}  // namespace trireme::config

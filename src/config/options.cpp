// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/options.hpp"

#include <algorithm>
#include <iterator>

namespace trireme::config {

namespace {

std::vector<Option> all_options() {
  std::vector<Option> all;
  for (auto* part : {run_options, model_options, data_options, mesh_options, context_options, pipeline_options,
                     batch_options, sync_options, precision_options, memory_options, loss_options, optimizer_options,
                     lr_options, train_options, checkpoint_options, metrics_options, device_options, comm_options}) {
    std::ranges::move(part(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

const std::vector<Option>& options() {
  static const std::vector<Option> table = all_options();
  return table;
}

const Option* find_option(std::string_view section, std::string_view key) {
  const auto found = std::ranges::find_if(
      options(), [&](const Option& option) { return option.section == section && option.key == key; });
  return found == options().end() ? nullptr : &*found;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Option& option : options())
    if (names.empty() || names.back() != option.section) names.push_back(option.section);
  return names;
}

std::vector<std::string> keys_of(std::string_view section) {
  std::vector<std::string> keys;
  for (const Option& option : options())
    if (option.section == section) keys.push_back(option.key);
  return keys;
}

}  // namespace trireme::config

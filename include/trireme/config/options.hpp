// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/codec.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/config/value.hpp"

/// The table of all options: source of the parser, the help, the validation and the printed run file.
namespace trireme::config {

/// One key of the run file. `config/section.hpp` has the words that make one.
struct Option {
  std::string section;
  std::string key;
  std::string type;     ///< as help shows it
  std::string meaning;  ///< one line of help
  /// Puts a value into the configuration, or returns the expected values.
  std::function<Expected(const Value&, RunConfig&)> read;
  /// The configuration's value as TOML; nothing when there is none to print.
  std::function<Printed(const RunConfig&)> print;
  /// The default as help shows it, if it is not a constant: "hidden_size / heads". Empty: printed from RunConfig{}.
  std::string default_text = {};
  /// The key must be given, unless the key of this name is ("" for always).
  std::optional<std::string> required_unless = {};
  bool any_text = false;  ///< a string: an override is taken word for word
  bool is_path = false;   ///< an empty one counts as not given

  [[nodiscard]] std::string name() const { return section + "." + key; }
};

/// Every option, section by section, in the order in which help and effective run files show them.
[[nodiscard]] const std::vector<Option>& options();

/// The option `section.key`; nullptr when there is none.
[[nodiscard]] const Option* find_option(std::string_view section, std::string_view key);

/// The names of the sections in the table's order.
[[nodiscard]] std::vector<std::string> section_names();

/// The keys of `section` in the table's order.
[[nodiscard]] std::vector<std::string> keys_of(std::string_view section);

/// The parts of the table.
[[nodiscard]] std::vector<Option> run_options();
[[nodiscard]] std::vector<Option> model_options();
[[nodiscard]] std::vector<Option> data_options();
[[nodiscard]] std::vector<Option> mesh_options();
[[nodiscard]] std::vector<Option> context_options();
[[nodiscard]] std::vector<Option> pipeline_options();
[[nodiscard]] std::vector<Option> batch_options();
[[nodiscard]] std::vector<Option> sync_options();
[[nodiscard]] std::vector<Option> precision_options();
[[nodiscard]] std::vector<Option> memory_options();
[[nodiscard]] std::vector<Option> loss_options();
[[nodiscard]] std::vector<Option> optimizer_options();
[[nodiscard]] std::vector<Option> lr_options();
[[nodiscard]] std::vector<Option> train_options();
[[nodiscard]] std::vector<Option> checkpoint_options();
[[nodiscard]] std::vector<Option> metrics_options();
[[nodiscard]] std::vector<Option> device_options();
[[nodiscard]] std::vector<Option> comm_options();

}  // namespace trireme::config

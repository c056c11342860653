// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/options.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/config/value.hpp"

namespace trireme::config {

/// The first line of an effective run file.
inline constexpr std::string_view effective_header = "# The effective run file: every key, defaults filled in.\n";

/// Turns the sections of a run file and the overrides into a configuration, collecting every mistake on the way.
class Reader {
 public:
  /// effective: the output of print_run_file, which has every key, set or not.
  Reader(std::string name, const Fields& sections, bool effective = false);
  /// Begins with a complete configuration instead of defaults: no key is missing.
  Reader(std::string name, RunConfig config);

  /// Replaces a value of the file by `section.key=value`.
  void set(const std::string& override_text);

  /// The valid part of the input, with defaults for everything else.
  [[nodiscard]] RunConfig read();
  /// Reads, completes and checks everything. Throws ConfigError listing all mistakes in the order of their lines.
  [[nodiscard]] RunConfig finish();

 private:
  struct Mistake {
    std::int64_t line;  ///< file lines first, then mistakes without a line
    std::string text;
  };

  void take_section(const Field& section);
  void take_key(const std::string& section, const Field& field);
  void refuse_unknown(const std::string& section, const Field& field);
  void read_values();
  void require_keys();
  void apply_rules();
  void check_lengths(const RunConfig& written);
  void check_written_end_step();
  void check_written_mask(const RunConfig& written);
  void refuse(const Place& place, const std::string& key, const std::string& message);
  [[nodiscard]] bool is_given(const std::string& key) const { return given_.contains(key); }
  [[nodiscard]] Place place_of(const std::string& key) const;
  void raise() const;

  std::string name_;
  bool effective_;
  bool complete_ = false;
  std::map<std::string, Value> given_;  ///< by "section.key"
  std::set<std::string> refused_;
  std::vector<Mistake> mistakes_;
  RunConfig config_;
};

}  // namespace trireme::config

// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/load.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "config/reader.hpp"
#include "config/toml.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/regular_file.hpp"
#include "trireme/config/options.hpp"
#include "trireme/config/overrides.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::config {

namespace {

constexpr std::size_t largest_file = 1 << 20;

/// The whole file. Throws ConfigError unless it is a readable regular file of text of at most 1 MiB.
std::string read_whole(const std::string& path) {
  const auto refuse = [&](const std::string& problem) {
    throw ConfigError(fmt::format("{}: cannot read the run file: {}; give the path of a TOML file", path, problem));
  };
  const io::RegularFile file = io::open_regular_file(path);
  const std::string inside = path + (path.ends_with('/') ? "" : "/") + "run.toml";
  if (!file.opened() && io::open_regular_file(inside).opened())
    throw ConfigError(fmt::format("{}: is a directory, not a run file; its run file is {}", path, inside));
  if (!file.opened()) refuse(file.problem());
  std::string text(largest_file + 1, '\0');
  std::size_t size = 0;
  int error = 0;
  while (size < text.size() && error == 0) {
    const ssize_t got = ::read(file.descriptor.get(), text.data() + size, text.size() - size);
    if (got == 0) break;
    if (got > 0) size += static_cast<std::size_t>(got);
    if (got < 0 && errno != EINTR) error = errno;
  }
  if (error != 0) refuse(std::generic_category().message(error));
  text.resize(size);
  if (text.size() > largest_file)
    throw ConfigError(fmt::format("{}: larger than 1 MiB, not a run file; give the path of a TOML file", path));
  return text;
}

void check_text(std::string_view text, const std::string& name) {
  const auto zero = text.find('\0');
  if (zero != std::string_view::npos)
    throw ConfigError(fmt::format("{}: not a text file (byte {} is 0); give the path of a TOML file", name, zero));
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] == '{') {
    const bool of_model = text.find("\"model_type\"") != std::string_view::npos;
    throw ConfigError(fmt::format(
        "{}: is JSON, not a run file; {}", name,
        of_model ? fmt::format("`trireme init --from {} --data TOKENS --ranks N` writes one for that model", name)
                 : "give the path of a TOML file"));
  }
  if (begin == std::string_view::npos)
    throw ConfigError(
        fmt::format("{}: the run file is empty; it needs at least [model], [data], [batch] and [train]", name));
}

}  // namespace

RunConfig parse_run_file(std::string_view text, const std::string& name, const std::vector<std::string>& overrides) {
  check_text(text, name);
  Reader reader(name, read_toml(text, name), text.starts_with(effective_header));
  for (const std::string& override_text : overrides) reader.set(override_text);
  return reader.finish();
}

RunConfig load_run_file(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_run_file(read_whole(path), path, overrides);
}

RunConfig set(const RunConfig& config, const std::vector<std::string>& overrides) {
  Reader reader("(changed)", config);
  for (const std::string& override_text : overrides) reader.set(override_text);
  return reader.finish();
}

RunConfig read_effective(std::string_view text) {
  const std::string name = "the run file";
  RunConfig config = Reader(name, read_toml(text, name), /*effective=*/true).read();
  complete(config);
  return config;
}

std::vector<Difference> differences(const RunConfig& before, const RunConfig& after) {
  std::vector<Difference> found;
  for (const Option& option : options()) {
    Difference one{option.section, option.key, option.print(before), option.print(after)};
    if (one.before != one.after) found.push_back(std::move(one));
  }
  return found;
}

RunConfig read_overrides(const std::vector<std::string>& overrides) {
  Reader reader("--set", Fields{});
  for (const std::string& override_text : overrides) reader.set(override_text);
  return reader.read();
}

}  // namespace trireme::config

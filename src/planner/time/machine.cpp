// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/machine.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "config/toml.hpp"
#include "planner/time/machine_keys.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/regular_file.hpp"
#include "trireme/base/text.hpp"

namespace trireme::planner {
namespace {

constexpr std::array grades{Grade::data_sheet, Grade::nominal, Grade::fitted, Grade::measured};

/// Reads one machine file.
class Reader {
 public:
  Reader(const toml::table& file, const std::string& name) : file_(file), name_(name) {}

  Machine read() {
    for (const auto& [section, node] : file_) {
      if (!node.is_table())
        fail(node, std::string(section.str()), "a key outside of all sections; expected " + sections());
      if (!known({"machine", "gpu", "host", "job", "inside", "between"}, section.str()))
        fail(node, std::string(section.str()), "unknown section; expected " + sections());
      check_keys(std::string(section.str()), *node.as_table());
    }
    read_machine();
    for (const MachineKey& key : machine_keys()) read_number(key);
    read_products();
    return machine_;
  }

 private:
  static std::string sections() { return "[machine], [gpu], [host], [job], [inside] or [between]"; }
  static bool known(const std::vector<std::string>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  [[noreturn]] void fail(const toml::node& node, const std::string& key, const std::string& what) const {
    const toml::source_position at = node.source().begin;
    throw ConfigError(fmt::format("{}:{}:{}: {}: {}", name_, at.line, at.column, key, what));
  }

  void check_keys(const std::string& section, const toml::table& table) const {
    std::vector<std::string> keys;
    if (section == "machine") keys = {"name", "about", "grade", "gpus"};
    if (section == "gpu") keys = {"products", "memory"};
    if (section == "host") keys = {"node_memory"};
    for (const MachineKey& key : machine_keys())
      if (key.section == section) keys.emplace_back(key.key);
    for (const auto& [key, node] : table)
      if (!known(keys, key.str())) {
        const auto near = nearest(key.str(), keys);
        fail(node, section + "." + std::string(key.str()),
             near ? fmt::format("unknown key; did you mean {}?", *near)
                  : "unknown key; expected one of " + join(keys, ", "));
      }
  }

  [[nodiscard]] const toml::node* find(std::string_view section, std::string_view key, bool required) const {
    const toml::node* table = file_.get(section);
    const toml::node* node = table == nullptr ? nullptr : table->as_table()->get(key);
    if (node != nullptr || !required) return node;
    const toml::node& at = table == nullptr ? static_cast<const toml::node&>(file_) : *table;
    fail(at, fmt::format("{}.{}", section, key), "missing");
  }

  [[nodiscard]] double number(const toml::node& node, const std::string& key, double least, double most) const {
    const std::optional<double> value = node.value<double>();
    if (!value || node.is_boolean() || !std::isfinite(*value) || *value < least || *value > most)
      fail(node, key,
           fmt::format("expected a number from {} to {}{}", least, most,
                       value && !node.is_boolean() ? fmt::format(", found {}", *value) : ""));
    return *value;
  }

  void read_number(const MachineKey& key) {
    const std::string path = fmt::format("{}.{}", key.section, key.key);
    const toml::node* node = find(key.section, key.key, key.required);
    if (node == nullptr) return;
    key.member(machine_) = number(*node, path, key.least, key.most) * key.scale;
    if (key.key == "gpus_per_node" && std::floor(machine_.gpus_per_node) != machine_.gpus_per_node)
      fail(*node, path, "expected a whole number");
  }

  [[nodiscard]] std::string text(std::string_view section, std::string_view key) const {
    const toml::node* node = find(section, key, true);
    const auto value = node->value<std::string>();
    if (!value || value->empty()) fail(*node, fmt::format("{}.{}", section, key), "expected a string in quotes");
    return *value;
  }

  [[nodiscard]] Bytes bytes(std::string_view section, std::string_view key) const {
    const toml::node* node = find(section, key, true);
    const std::string path = fmt::format("{}.{}", section, key);
    Bytes found;
    try {
      found = parse_bytes(text(section, key));
    } catch (const ConfigError& error) {
      fail(*node, path, error.what());
    }
    if (found.value <= 0) fail(*node, path, "expected more than 0 bytes");
    return found;
  }

  void read_machine() {
    machine_.name = text("machine", "name");
    machine_.about = text("machine", "about");
    const std::string grade = text("machine", "grade");
    const auto found = std::find_if(grades.begin(), grades.end(), [&](Grade g) { return to_text(g) == grade; });
    if (found == grades.end())
      fail(*find("machine", "grade", true), "machine.grade",
           "expected \"nominal\", \"fitted\" or \"measured\", or \"data sheet\"");
    machine_.grade = *found;
    machine_.memory = bytes("gpu", "memory");
    if (find("host", "node_memory", false) != nullptr) machine_.node_memory = bytes("host", "node_memory");
    const toml::node* gpus = find("machine", "gpus", false);
    if (gpus == nullptr) return;
    if (!gpus->is_array()) fail(*gpus, "machine.gpus", "expected a list of strings");
    for (const toml::node& gpu : *gpus->as_array()) {
      const auto word = gpu.value<std::string>();
      if (!word || word->empty()) fail(gpu, "machine.gpus", "expected a string in quotes");
      machine_.gpus.push_back(*word);
    }
  }

  void read_products() {
    const toml::node* products = find("gpu", "products", true);
    const char* form = "expected a list of { gflops = of one product, tflops = achieved }, smallest first";
    if (!products->is_array() || products->as_array()->empty()) fail(*products, "gpu.products", form);
    for (const toml::node& entry : *products->as_array()) {
      const toml::table* table = entry.as_table();
      if (table == nullptr || table->size() != 2 || !table->contains("gflops") || !table->contains("tflops"))
        fail(entry, "gpu.products", form);
      const ProductRate rate{.flops = number(*table->get("gflops"), "gpu.products.gflops", 1e-6, 1e9) * 1e9,
                             .rate = number(*table->get("tflops"), "gpu.products.tflops", 1e-6, 1e5) * 1e12};
      if (rate.rate > machine_.peak_flops)
        fail(*table->get("tflops"), "gpu.products.tflops", "more than gpu.peak_tflops");
      if (!machine_.products.empty() && rate.flops <= machine_.products.back().flops)
        fail(*table->get("gflops"), "gpu.products.gflops", "not larger than the one before");
      machine_.products.push_back(rate);
    }
  }

  const toml::table& file_;
  const std::string& name_;
  Machine machine_;
};

}  // namespace

std::string_view to_text(Grade grade) {
  switch (grade) {
    case Grade::data_sheet: return "data sheet";
    case Grade::nominal: return "nominal";
    case Grade::fitted: return "fitted";
    case Grade::measured: return "measured";
  }
  return "?";
}

Machine parse_machine(std::string_view text, const std::string& name) {
  if (config::has_endless_key(text))
    throw ConfigError(fmt::format("{}: not valid TOML: a key has too many parts", name));
  try {
    const toml::table file = toml::parse(text);
    return Reader(file, name).read();
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw ConfigError(fmt::format("{}:{}:{}: not valid TOML: {}", name, at.line, at.column, error.description()));
  }
}

std::string read_small_file(std::string_view option, const std::string& path, std::int64_t most) {
  try {
    return io::read_text(path, most);
  } catch (const Error& error) {
    throw ConfigError(fmt::format("{} {}", option, error.what()));
  }
}

Machine load_machine(const std::string& path_or_name) {
  std::vector<std::string> names;
  for (const ShippedMachine& machine : shipped_machines()) {
    if (machine.name == path_or_name) return parse_machine(machine.text, path_or_name + ".toml");
    names.emplace_back(machine.name);
  }
  const io::RegularFile opened = io::open_regular_file(path_or_name);
  constexpr std::int64_t largest_file = 1 << 20;
  if (!opened.kind.empty() || opened.bytes > largest_file)
    throw ConfigError(fmt::format("--machine {}: {}; give a shipped machine's name or a machine file", path_or_name,
                                  opened.kind.empty() ? "it is larger than 1 MiB" : opened.problem()));
  if (opened.error == ENOENT || opened.error == ENOTDIR)
    throw ConfigError(fmt::format("--machine {}: no such file, and no shipped machine of that name; shipped are {}",
                                  path_or_name, join(names, ", ")));
  return parse_machine(read_small_file("--machine", path_or_name, largest_file), path_or_name);
}

std::string print_machine(const Machine& machine) {
  const auto quoted = [](const std::string& word) {
    using Json = nlohmann::json;  // a string of JSON is one of TOML
    return Json(word).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string out, section;
  Machine copy = machine;
  for (const MachineKey& key : machine_keys()) {
    if (key.section != section) {
      section = key.section;
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
      if (section == "machine") {
        std::vector<std::string> gpus;
        for (const std::string& gpu : machine.gpus) gpus.push_back(quoted(gpu));
        out += fmt::format("name = {}\nabout = {}\ngrade = \"{}\"\ngpus = [{}]\n", quoted(machine.name),
                           quoted(machine.about), to_text(machine.grade), join(gpus, ", "));
      }
      if (section == "gpu") {
        std::vector<std::string> rates;
        for (const ProductRate& rate : machine.products)
          rates.push_back(fmt::format("{{ gflops = {:.7g}, tflops = {:.6g} }}", rate.flops / 1e9, rate.rate / 1e12));
        out += fmt::format("memory = \"{}\"\nproducts = [{}]\n", machine.memory.value, join(rates, ", "));
      }
      if (section == "host" && machine.node_memory.value > 0)
        out += fmt::format("node_memory = \"{}\"  # host memory of a node\n", machine.node_memory.value);
    }
    out += fmt::format("{} = {:.6g}  # {}\n", key.key, key.member(copy) / key.scale, key.meaning);
  }
  return out;
}

}  // namespace trireme::planner

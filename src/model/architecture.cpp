// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/architecture.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "model/families.hpp"
#include "trireme/base/error.hpp"

namespace trireme::model {

const NameRow& Architecture::name_of(Role role) const {
  const auto row = std::find_if(names.begin(), names.end(), [&](const NameRow& r) { return r.role == role; });
  invariant(row != names.end(), fmt::format("{} names no tensor for role {}", name, static_cast<int>(role)));
  return *row;
}

bool Architecture::expresses(Member member) const {
  return std::any_of(keys.begin(), keys.end(), [&](const KeyRow& row) { return row.member == member; });
}

std::span<const Architecture> architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> list;
    for (const auto family : families) list.push_back(family());
    return list;
  }();
  return all;
}

const Architecture& architecture(std::string_view name) {
  const auto all = architectures();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Architecture& a) { return a.name == name; });
  if (found != all.end()) return *found;
  std::vector<std::string_view> known;
  for (const Architecture& one : all) known.push_back(one.name);
  throw ConfigError(
      fmt::format("model.architecture = \"{}\" is not known; use one of: {}", name, fmt::join(known, ", ")));
}

Decoder decoder_of(const config::Model& config) { return architecture(config.architecture).decoder; }

}  // namespace trireme::model

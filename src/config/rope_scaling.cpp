// SPDX-License-Identifier: Apache-2.0
#include "config/rope_scaling.hpp"

#include <algorithm>
#include <span>
#include <variant>
#include <vector>

namespace trireme::config {

namespace {

using Number = std::variant<double RopeScaling::*, std::int64_t RopeScaling::*, bool RopeScaling::*,
                            std::vector<double> RopeScaling::*>;

/// A key of the table.
struct RopeKey {
  std::string_view key;
  Number member;
  Limits limits;
  bool only_if_set = false;  ///< 0, its default, is not printed
};

std::vector<RopeKey> rows_of(RopeType type) {
  using S = RopeScaling;
  const RopeKey factor{"factor", &S::factor, at_least(1)};
  const RopeKey original{"original_max_position_embeddings", &S::original_max_position_embeddings, between(1, 1 << 30)};
  switch (type) {
    case RopeType::llama3:
      return {factor,
              {"low_freq_factor", &S::low_freq_factor, above(0)},
              {"high_freq_factor", &S::high_freq_factor, above(0)},
              original};
    case RopeType::linear: return {factor};
    case RopeType::dynamic: return {factor, original};
    case RopeType::yarn:
      return {factor,
              original,
              {"attention_factor", &S::attention_factor, at_least(0)},
              {"beta_fast", &S::beta_fast, above(0)},
              {"beta_slow", &S::beta_slow, above(0)},
              {"truncate", &S::truncate, {}},
              {"llama_4_scaling_beta", &S::llama_4_scaling_beta, at_least(0)},
              {"mscale_all_dim", &S::mscale_all_dim, at_least(0), true}};
    case RopeType::longrope:
      return {factor,
              original,
              {"attention_factor", &S::attention_factor, at_least(0)},
              {"short_factor", &S::short_factor, above(0)},
              {"long_factor", &S::long_factor, above(0)}};
  }
  return {};
}

Expected read_number(const Value& value, double& target, const Limits& limits) { return read(value, target, limits); }
Expected read_number(const Value& value, std::int64_t& target, const Limits& limits) {
  return read(value, target, limits);
}
Expected read_number(const Value& value, bool& target, const Limits& /*none*/) { return read(value, target); }

Expected read_number(const Value& value, std::vector<double>& target, const Limits& limits) {
  const auto* list = std::get_if<List>(&value.data);
  std::vector<double> numbers(list == nullptr ? 0 : list->size());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (read((*list)[i], numbers[i], limits)) list = nullptr, numbers.clear();
  if (list == nullptr) return "a list of numbers" + limits.text();
  target = std::move(numbers);
  return std::nullopt;
}

Printed print_number(const std::vector<double>& values) {
  std::string text = "[";
  for (const double value : values) text += (text.size() > 1 ? ", " : "") + *print(value);
  return text + "]";
}
template <class T>
Printed print_number(const T& value) {
  return print(value);
}

/// Reads one key; returns the allowed values if the value is not one of them.
Expected read_field(const Field& field, std::span<const RopeKey> rows, RopeScaling& scaling) {
  if (field.key == "rope_type") return std::nullopt;
  std::string keys = "one of rope_type";
  for (const RopeKey& row : rows) {
    if (row.key == field.key)
      return std::visit([&](auto member) { return read_number(field.value, scaling.*member, row.limits); }, row.member);
    keys += ", " + std::string(row.key);
  }
  return keys;
}

}  // namespace

Expected read_rope_scaling(const Value& value, Model& model) {
  const std::string form = std::string("a table ") + rope_scaling_form;
  const auto* fields = std::get_if<Fields>(&value.data);
  if (fields == nullptr) return form;
  const auto type = std::find_if(fields->begin(), fields->end(), [](const Field& f) { return f.key == "rope_type"; });
  RopeScaling scaling;
  if (type == fields->end()) return form + "; rope_type is missing";
  const auto in_it = [&](const Field& field, const std::string& expected) {
    return form + "; in it, " + field.key + " = " + describe(field.value) + " where it takes " + expected;
  };
  if (const Expected expected = read_choice(type->value, scaling.type)) return in_it(*type, *expected);
  const std::vector<RopeKey> rows = rows_of(scaling.type);
  for (const Field& field : *fields)
    if (const Expected expected = read_field(field, rows, scaling)) return in_it(field, *expected);
  if (scaling.type == RopeType::llama3 && scaling.low_freq_factor >= scaling.high_freq_factor)
    return form + "; low_freq_factor below high_freq_factor";
  if (scaling.type == RopeType::yarn && scaling.beta_slow >= scaling.beta_fast)
    return form + "; beta_slow below beta_fast";
  model.rope_scaling = scaling;
  return std::nullopt;
}

Printed print_rope_scaling(const Model& model) {
  if (!model.rope_scaling) return std::nullopt;
  std::string text = "{ rope_type = " + quoted(config::to_text(model.rope_scaling->type));
  for (const RopeKey& row : rows_of(model.rope_scaling->type)) {
    const auto* number = std::get_if<double RopeScaling::*>(&row.member);
    if (row.only_if_set && number != nullptr && (*model.rope_scaling).**number == 0) continue;
    text += ", " + std::string(row.key) + " = " +
            std::visit([&](auto member) { return *print_number((*model.rope_scaling).*member); }, row.member);
  }
  return text + " }";
}

}  // namespace trireme::config

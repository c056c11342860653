// SPDX-License-Identifier: Apache-2.0
#include "config/reader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "config/toml.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::config {

namespace {

constexpr std::size_t most_mistakes_shown = 50;

/// A key for a message: a bare one unchanged, others in quotes, long ones truncated.
std::string shown(const std::string& key) {
  const bool bare =
      !key.empty() &&
      key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.[]") == std::string::npos;
  return bare && key.size() <= 60 ? key : describe({.data = key, .place = {}});
}

std::string sections_with(const std::string& key) {
  std::vector<std::string> names;
  for (const std::string& section : section_names())
    if (find_option(section, key) != nullptr) names.push_back(section + "." + key);
  return join(names, " or ");
}

std::string unknown_section(const std::string& section) {
  if (const auto near = nearest(section, section_names()))
    return fmt::format("unknown section; did you mean [{}]?", *near);
  return "unknown section; expected one of " + join(section_names(), ", ");
}

/// A value outside of all sections.
std::string outside_sections(const std::string& key) {
  const auto sections = section_names();
  if (std::find(sections.begin(), sections.end(), key) != sections.end())
    return fmt::format("expected a section: [{}] on a line of its own, its keys below", key);
  if (const std::string inside = sections_with(key); !inside.empty())
    return fmt::format("a key outside of all sections; did you mean {}?", inside);
  return "a key outside of all sections; expected one of the sections " + join(sections, ", ");
}

bool is_empty_path(const Option& option, const Value& value) {
  const auto* text = std::get_if<std::string>(&value.data);
  return option.is_path && text != nullptr && text->empty();
}

}  // namespace

Reader::Reader(std::string name, const Fields& sections, bool effective)
    : name_(std::move(name)), effective_(effective) {
  for (const Field& section : sections) take_section(section);
}

Reader::Reader(std::string name, RunConfig config)
    : name_(std::move(name)), effective_(true), complete_(true), config_(std::move(config)) {}

void Reader::take_section(const Field& section) {
  const auto& [name, value] = section;
  const auto* fields = std::get_if<Fields>(&value.data);
  if (fields == nullptr) {
    refuse(value.place, name, outside_sections(name));
  } else if (keys_of(name).empty()) {
    refuse(value.place, "[" + name + "]", unknown_section(name));
  } else {
    for (const Field& field : *fields) take_key(name, field);
  }
}

void Reader::take_key(const std::string& section, const Field& field) {
  const std::string name = section + "." + field.key;
  const Option* option = find_option(section, field.key);
  if (option == nullptr) {
    refuse_unknown(section, field);
  } else if (is_empty_path(*option, field.value)) {
    given_.erase(name);
  } else {
    given_.insert_or_assign(name, field.value);
  }
}

void Reader::refuse_unknown(const std::string& section, const Field& field) {
  std::string message = "unknown key";
  if (mistakes_.size() < most_mistakes_shown) {
    const auto near = nearest(field.key, keys_of(section));
    const std::string elsewhere = sections_with(field.key);
    if (near) {
      message += fmt::format("; did you mean {}.{}?", section, *near);
      refused_.insert(section + "." + *near);  // a misspelt key is not missing as well
    } else if (!elsewhere.empty()) {
      message += fmt::format("; did you mean {}?", elsewhere);
    } else {
      message += fmt::format("; [{}] has {}", section, join(keys_of(section), ", "));
    }
  }
  refuse(field.value.place, section + "." + field.key, message);
}

void Reader::set(const std::string& override_text) {
  try {
    Override change = read_override(override_text);
    if (keys_of(change.section).empty())
      return refuse(change.value.place, "[" + change.section + "]", unknown_section(change.section));
    const Option* option = find_option(change.section, change.key);
    const bool is_text = std::holds_alternative<std::string>(change.value.data);
    if (option != nullptr && option->any_text && !is_text) change.value.data = change.raw;
    take_key(change.section, {.key = change.key, .value = change.value});
  } catch (const ConfigError& error) {
    mistakes_.push_back({.line = std::numeric_limits<std::int64_t>::max(), .text = error.what()});
  }
}

RunConfig Reader::read() {
  read_values();
  return config_;
}

RunConfig Reader::finish() {
  read_values();
  if (!complete_) require_keys();
  const RunConfig written = config_;
  complete(config_);
  check_lengths(written);
  check_written_mask(written);
  apply_rules();
  check_written_end_step();
  raise();
  return config_;
}

void Reader::read_values() {
  for (const Option& option : options()) {
    const auto found = given_.find(option.name());
    if (found == given_.end()) continue;
    const Value& value = found->second;
    if (const Expected expected = option.read(value, config_))
      refuse(value.place, option.name(), fmt::format("found {}, expected {}", describe(value), *expected));
  }
}

void Reader::require_keys() {
  for (const Option& option : options()) {
    if (!option.required_unless || is_given(*option.required_unless)) continue;
    if (!is_given(option.name()) && !refused_.contains(option.name()))
      refuse(place_of(option.name()), option.name(), fmt::format("missing ({}): {}", option.type, option.meaning));
  }
}

void Reader::apply_rules() {
  for (const Rule& rule : rules()) {
    const bool readable =
        std::none_of(rule.keys.begin(), rule.keys.end(), [&](const auto& key) { return refused_.contains(key); });
    if (!readable) continue;
    if (const auto broken = rule.broken(config_)) {
      const auto given =
          std::find_if(rule.keys.begin(), rule.keys.end(), [&](const auto& key) { return is_given(key); });
      const std::string& key = given == rule.keys.end() ? rule.keys.front() : *given;
      refuse(place_of(key), key, *broken);
    }
  }
}

/// A run whose end_step follows from train.steps may be the first steps of a longer one; one that is written out is the
/// end of the schedule.
void Reader::check_written_end_step() {
  const char* const key = is_given("lr.end_tokens") ? "lr.end_tokens" : "lr.end_step";
  const auto written = given_.find(key);
  if (written == given_.end() || refused_.contains(key)) return;
  if (effective_ && written->second.place.line > 0) return;
  const Lr& lr = config_.lr;
  if (lr.schedule == LrSchedule::wsd && lr.end_step == config_.train.steps &&
      lr.warmup_steps + lr.wsd_decay_steps > *lr.end_step)
    refuse(written->second.place, key,
           fmt::format("the decay never begins: warmup_steps {} + wsd_decay_steps {} go beyond end_step {}; set fewer, "
                       "or remove {} for the first steps of a longer run",
                       lr.warmup_steps, lr.wsd_decay_steps, *lr.end_step, key));
}

/// Packed documents do not see each other. An effective run file has both keys.
void Reader::check_written_mask(const RunConfig& written) {
  const char* const key = "data.document_mask";
  const auto found = given_.find(key);
  if (found == given_.end() || refused_.contains(key) || written.data.document_mask) return;
  if (!config_.data.document_mask || (effective_ && found->second.place.line > 0)) return;
  refuse(found->second.place, key,
         "false contradicts data.packing = \"best_fit\", whose documents do not see each other; remove it, or set "
         "data.packing = \"concatenate\"");
}

/// Refuses steps that differ from those of a length in tokens. An effective run file has both: there an override may
/// change the tokens of a step.
void Reader::check_lengths(const RunConfig& written) {
  const std::vector<InTokens> before = lengths_in_tokens(written), after = lengths_in_tokens(config_);
  for (std::size_t i = 0; i < after.size(); ++i) {
    const InTokens& length = after[i];
    const auto found = given_.find(length.steps_key);
    if (!length.tokens || found == given_.end() || refused_.contains(length.steps_key)) continue;
    if (before[i].steps == length.steps || (effective_ && found->second.place.line > 0)) continue;
    refuse(found->second.place, length.steps_key,
           fmt::format("{} contradicts {} = {}, which is {} steps of {} tokens; give one of the two", before[i].steps,
                       length.tokens_key, *length.tokens, length.steps, config_.batch.global * config_.data.seq_len));
  }
}

Place Reader::place_of(const std::string& key) const {
  const auto found = given_.find(key);
  return found == given_.end() ? Place{.source = name_, .line = 0} : found->second.place;
}

void Reader::refuse(const Place& place, const std::string& key, const std::string& message) {
  refused_.insert(key);
  mistakes_.push_back({.line = place.line > 0 ? place.line : std::numeric_limits<std::int64_t>::max(),
                       .text = fmt::format("{}: {}: {}", place.text(), shown(key), message)});
}

void Reader::raise() const {
  std::vector<Mistake> sorted = mistakes_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Mistake& a, const Mistake& b) { return a.line < b.line; });
  Mistakes report;
  for (std::size_t i = 0; i < std::min(sorted.size(), most_mistakes_shown); ++i) report.add(sorted[i].text);
  if (sorted.size() > most_mistakes_shown)
    report.add(fmt::format("... and {} more", sorted.size() - most_mistakes_shown));
  report.raise(
      fmt::format("{} {} in the run file {}:", sorted.size(), sorted.size() == 1 ? "mistake" : "mistakes", name_));
}

}  // namespace trireme::config

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/options.hpp"

namespace trireme::config {

/// Attributes of an option in its table, one word each.
class Row {
 public:
  explicit Row(Option& option) : option_(option) {}
  /// The default in words, if it is not a constant.
  Row& default_is(std::string text) {
    option_.default_text = std::move(text);
    return *this;
  }
  /// The key must be given.
  Row& required() {
    option_.required_unless = "";
    return *this;
  }
  /// The key must be given unless the key `name` is.
  Row& required_unless(std::string name) {
    option_.required_unless = std::move(name);
    return *this;
  }
  /// Its value is a string: an override is taken word for word.
  Row& any_text() {
    option_.any_text = true;
    return *this;
  }
  /// Its value is a path: an empty one counts as not given.
  Row& is_path() {
    option_.is_path = true;
    return any_text();
  }

 private:
  Option& option_;
};

/// Builds one section of the table of options; each function adds a row that binds a key to a member.
template <class S>
class Section {
 public:
  Section(std::string name, S RunConfig::*section) : name_(std::move(name)), section_(section) {}

  [[nodiscard]] std::vector<Option> take() { return std::move(options_); }

  /// An integer, a number, bytes or a list of integers.
  template <class T>
  Row number(std::string key, T S::*member, Limits limits, std::string meaning) {
    return custom(
        std::move(key), type_name(T{}), [=](const Value& value, S& s) { return read(value, s.*member, limits); },
        [=](const S& s) { return print(s.*member); }, std::move(meaning));
  }

  /// A positive integer that is 0 in RunConfig when it was not given.
  Row size(std::string key, std::int64_t S::*member, double max, std::string meaning) {
    return custom(
        std::move(key), "integer", [=](const Value& value, S& s) { return read(value, s.*member, between(1, max)); },
        [=](const S& s) { return s.*member == 0 ? std::nullopt : print(s.*member); }, std::move(meaning));
  }

  /// true or false.
  template <class T>
  Row flag(std::string key, T S::*member, std::string meaning) {
    return custom(
        std::move(key), type_name(bool{}), [=](const Value& value, S& s) { return read(value, s.*member); },
        [=](const S& s) { return print(s.*member); }, std::move(meaning));
  }

  /// One of the names of an enumeration.
  template <class Choice>
  Row choice(std::string key, Choice S::*member, std::string meaning) {
    return custom(
        std::move(key), choice_names<Choice>(), [=](const Value& value, S& s) { return read_choice(value, s.*member); },
        [=](const S& s) -> Printed { return quoted(config::to_text(s.*member)); }, std::move(meaning));
  }

  /// Any string.
  Row word(std::string key, std::string S::*member, std::string meaning) {
    return custom(
               std::move(key), "string", [=](const Value& value, S& s) { return read(value, s.*member); },
               [=](const S& s) { return print(s.*member); }, std::move(meaning))
        .any_text();
  }

  /// A path, `${VAR}` expanded.
  Row path(std::string key, std::string S::*member, std::string meaning) {
    return custom(
               std::move(key), "path", [=](const Value& value, S& s) { return read_path(value, s.*member); },
               [=](const S& s) { return print_path(s.*member); }, std::move(meaning))
        .is_path();
  }

  /// A key with its own way to be read into the section and printed.
  template <class Read, class Print>
  Row custom(std::string key, std::string type, Read read, Print print, std::string meaning) {
    auto section = section_;
    return add({.section = name_,
                .key = std::move(key),
                .type = std::move(type),
                .meaning = std::move(meaning),
                .read = [=](const Value& value, RunConfig& config) -> Expected { return read(value, config.*section); },
                .print = [=](const RunConfig& config) -> Printed { return print(config.*section); }});
  }

 private:
  Row add(Option option) {
    options_.push_back(std::move(option));
    return Row(options_.back());
  }

  std::string name_;
  S RunConfig::*section_;
  std::vector<Option> options_;
};

}  // namespace trireme::config

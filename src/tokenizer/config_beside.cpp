// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/config_beside.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/io/json.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/input_file.hpp"

namespace trireme::tokenizer {
namespace {

namespace fs = std::filesystem;
using hf::AddedToken;
using nlohmann::json;

constexpr std::int64_t largest_bytes = std::int64_t{64} << 20;
constexpr std::array<const char*, 7> attributes = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                   "pad_token", "cls_token", "mask_token"};

/// Reads a file in the tokenizer's folder; an empty object if it does not exist.
json read_object(const std::string& path, const char* kind) {
  std::error_code error;
  if (!fs::exists(path, error)) return json::object();
  const io::InputFile file(path, kind);
  json read = io::parse_or_discard(file.read_whole(largest_bytes));
  if (!read.is_object())
    throw DataError(fmt::format("{} is not a JSON object, or is nested too deep; is it complete?", file.name()));
  return read;
}

[[noreturn]] void refuse(const std::string& file, const std::string& key, const char* expected) {
  throw DataError(fmt::format("{}: {} is not {}", file, key, expected));
}

/// The text of a token: itself, or the content of a table.
std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  const auto content = value.is_object() ? value.find("content") : value.end();
  return content != value.end() && content->is_string() ? content->get<std::string>() : std::string();
}

/// A token of another file than tokenizer.json: a text, which is special, or a table.
AddedToken token_of(const json& value, bool special_absent, const std::string& file, const std::string& key) {
  const auto flag = [&](const char* name, bool absent) {
    const auto found = value.is_object() ? value.find(name) : value.end();
    if (found == value.end() || !value.is_object()) return absent;
    if (!found->is_boolean()) refuse(file, key + "." + name, "true or false");
    return found->get<bool>();
  };
  AddedToken token{.id = hf::no_id, .content = text_of(value)};
  if (token.content.empty() && !value.is_string()) refuse(file, key, "a token");
  token.special = flag("special", special_absent);
  token.single_word = flag("single_word", false);
  token.left_strip = flag("lstrip", false);
  token.right_strip = flag("rstrip", false);
  token.normalized = flag("normalized", !token.special);
  return token;
}

std::optional<bool> flag_of(const json& config, const char* key, const std::string& file) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (!found->is_boolean()) refuse(file, key, "true or false");
  return found->get<bool>();
}

bool holds_tokens(const json& config, const char* key) {
  return config.contains(key) && !config[key].is_null() && !config[key].empty();
}

/// Merges the three files in the order of transformers' PreTrainedTokenizerBase._from_pretrained.
class Reading {
 public:
  explicit Reading(const fs::path& folder)
      : config_file_((folder / "tokenizer_config.json").string()),
        map_file_((folder / "special_tokens_map.json").string()),
        added_file_((folder / "added_tokens.json").string()),
        given_(read_object(config_file_, "tokenizer configuration")),
        config_(given_),
        legacy_(!given_.contains("added_tokens_decoder")) {
    if (holds_tokens(config_, "additional_special_tokens") && !holds_tokens(config_, "extra_special_tokens"))
      move_additional();
    const json map = read_object(map_file_, "table of special tokens");
    if (legacy_)
      for (const auto& [key, value] : map.items()) merge(key, value);
    // With added_tokens_decoder transformers ignores the other files; eos_token is read from there nevertheless.
    else if (map.contains("eos_token") && text_of(config_.value("eos_token", json())).empty())
      only_end_ = text_of(map["eos_token"]);
    if (config_.contains("additional_special_tokens") && !config_.contains("extra_special_tokens")) move_additional();
  }

  ConfigBeside operator()(const json& in_file) {
    ConfigBeside beside;
    std::error_code error;
    if (fs::exists(config_file_, error)) beside.file = config_file_;
    beside.add_bos = flag_of(config_, "add_bos_token", config_file_);
    beside.add_eos = flag_of(config_, "add_eos_token", config_file_);
    beside.split_specials = flag_of(config_, "split_special_tokens", config_file_);
    beside.bos = text_of(config_.value("bos_token", json()));
    beside.eos = text_of(config_.value("eos_token", json()));
    beside.eos_file = overridden_.contains("eos_token") ? map_file_ : config_file_;
    if (beside.eos.empty() && !only_end_.empty()) {
      beside.eos = only_end_;
      beside.eos_file = map_file_;
    }
    if (config_.contains("tokenizer_class") && config_["tokenizer_class"].is_string())
      beside.tokenizer_class = config_["tokenizer_class"];
    read_named();
    read_listed(in_file, beside.listed);
    beside.named = named_;
    for (AddedToken& token : beside.listed)
      token.special = token.special || std::ranges::find(named_, token.content, &AddedToken::content) != named_.end();
    read_extra(beside.extra);
    return beside;
  }

 private:
  void move_additional() {
    config_["extra_special_tokens"] = config_["additional_special_tokens"];
    config_.erase("additional_special_tokens");
  }

  void merge(const std::string& key, const json& value) {
    overridden_.insert(key);
    if (key != "extra_special_tokens" || !value.is_array() || !holds_tokens(config_, "extra_special_tokens") ||
        !config_[key].is_array()) {
      config_[key] = value;
      return;
    }
    for (const json& token : value)
      if (std::ranges::find(config_[key], token) == config_[key].end()) config_[key].push_back(token);
  }

  [[nodiscard]] const std::string& file_of(const std::string& key) const {
    return overridden_.contains(key) ? map_file_ : config_file_;
  }

  void read_named() {
    const auto add = [&](const std::string& key, const json& value) {
      if (!value.is_null() && !text_of(value).empty()) named_.push_back(token_of(value, true, file_of(key), key));
    };
    for (const char* key : attributes) add(key, config_.value(key, json()));
    for (const auto& [key, value] : given_.items())
      if (key.ends_with("_token") && std::ranges::find(attributes, key) == attributes.end() && !text_of(value).empty())
        add(key, value);
    const auto extra = config_.find("extra_special_tokens");
    if (extra != config_.end() && extra->is_object())
      for (const auto& [key, value] : extra->items()) add("extra_special_tokens", value);
  }

  /// added_tokens_decoder, or added_tokens.json with the tokens of tokenizer.json, by their ids there.
  void read_listed(const json& in_file, std::vector<AddedToken>& listed) {
    std::map<std::int64_t, AddedToken> by_id;
    if (!legacy_) {
      const json& table = config_["added_tokens_decoder"];
      if (!table.is_null() && !table.is_object()) refuse(config_file_, "added_tokens_decoder", "a table");
      for (const auto& [text, value] : table.items()) {
        const std::string key = "added_tokens_decoder." + text;
        std::int64_t id = 0;
        if (std::from_chars(text.data(), text.data() + text.size(), id).ptr != text.data() + text.size())
          refuse(config_file_, key, "a token id");
        by_id.insert_or_assign(id, token_of(value, false, config_file_, key));
      }
    } else {
      const json added = read_object(added_file_, "table of added tokens");
      for (const auto& [text, id] : added.items()) {
        if (!id.is_number_integer()) refuse(added_file_, text, "a token id");
        const bool special = is_special(text);
        by_id.insert_or_assign(id.get<std::int64_t>(), AddedToken{.id = hf::no_id,
                                                                  .content = text,
                                                                  .special = special,
                                                                  .single_word = false,
                                                                  .left_strip = false,
                                                                  .right_strip = false,
                                                                  .normalized = !special});
      }
      for (const json& token : in_file)  // which go before those of the same id
        if (token.is_object() && token.contains("id") && token["id"].is_number_integer())
          by_id.insert_or_assign(token["id"].get<std::int64_t>(),
                                 token_of(token, false, "tokenizer.json", "added_tokens"));
    }
    for (auto& [id, token] : by_id) listed.push_back(std::move(token));
  }

  [[nodiscard]] bool is_special(const std::string& text) const {
    for (const char* key : attributes)
      if (text_of(config_.value(key, json())) == text) return true;
    const auto extra = config_.find("extra_special_tokens");
    return extra != config_.end() && extra->is_array() &&
           std::ranges::any_of(*extra, [&](const json& token) { return text_of(token) == text; });
  }

  void read_extra(std::vector<AddedToken>& tokens) {
    const auto extra = config_.find("extra_special_tokens");
    if (extra == config_.end() || extra->is_null() || extra->is_object()) return;
    if (!extra->is_array()) refuse(file_of("extra_special_tokens"), "extra_special_tokens", "a list or a table");
    for (const json& value : *extra)
      tokens.push_back(token_of(value, true, file_of("extra_special_tokens"), "extra_special_tokens"));
  }

  std::string config_file_, map_file_, added_file_;
  const json given_;
  json config_;
  bool legacy_;
  std::set<std::string> overridden_;  ///< keys of special_tokens_map.json
  std::string only_end_;
  std::vector<AddedToken> named_;
};

}  // namespace

ConfigBeside read_config_beside(const std::string& path, const json& in_file) {
  return Reading(fs::path(path).parent_path())(in_file);
}

}  // namespace trireme::tokenizer

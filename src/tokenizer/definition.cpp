// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/definition.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "trireme/base/sha256.hpp"

namespace trireme::tokenizer {
namespace {

using nlohmann::json;

constexpr std::size_t digits = 32;

/// Removes null values of objects, at any depth.
void remove_nulls(json& value) {
  if (value.is_object())
    for (auto item = value.begin(); item != value.end();) item = item->is_null() ? value.erase(item) : std::next(item);
  if (value.is_structured())
    for (json& item : value) remove_nulls(item);
}

/// The keys of "model" except for its type, which older files lack, and options that are off.
json canonical_model(const json& model) {
  json kept = json::object();
  for (const auto& [key, value] : model.items()) {
    const bool off = value.is_null() || value == false || value == "";
    if (key != "type" && key != "merges" && !off) kept[key] = value;
  }
  const auto merges = model.find("merges");
  if (merges == model.end() || !merges->is_array()) return kept;
  json& texts = kept["merges"] = json::array();
  for (const json& merge : *merges)
    texts.push_back(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()
                        ? json(merge[0].get_ref<const std::string&>() + " " + merge[1].get_ref<const std::string&>())
                        : merge);
  return kept;
}

}  // namespace

std::string definition_of(std::string_view contents, std::span<const std::int32_t> begin, std::int32_t end) {
  Sha256 hash;
  hash.add(fmt::format("{}\n{}\n", fmt::join(begin, " "), end));
  hash.add(contents);
  return hash.hex().substr(0, digits);
}

std::string canonical_text(const json& file, const std::vector<hf::AddedToken>& added) {
  json canonical{{"model", canonical_model(file.at("model"))}, {"added", json::array()}};
  for (const hf::AddedToken& token : added)
    canonical["added"].push_back(
        {token.id, token.content, token.single_word, token.left_strip, token.right_strip, token.normalized});
  for (const char* key : {"normalizer", "pre_tokenizer"}) {
    json part = file.value(key, json());
    remove_nulls(part);
    if (!part.is_null()) canonical[key] = std::move(part);
  }
  return canonical.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace trireme::tokenizer

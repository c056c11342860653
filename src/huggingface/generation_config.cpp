// SPDX-License-Identifier: Apache-2.0
//
// Settings of generation in a model's files: first and last tokens, sampling.
#include "huggingface/generation_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "huggingface/mistakes.hpp"

namespace trireme::huggingface {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Ids = std::vector<std::int64_t>;

constexpr const char* bos = "bos_token_id";
constexpr const char* eos = "eos_token_id";

Ids ids_in(const json& table, const char* key) {
  Ids ids;
  const auto found = table.find(key);
  if (found == table.end()) return ids;
  if (found->is_number_unsigned()) ids.push_back(found->get<std::int64_t>());
  if (found->is_array())
    for (const json& id : *found)
      if (id.is_number_unsigned()) ids.push_back(id.get<std::int64_t>());
  return ids;
}

void add_new(Ids& ids, const Ids& more) {
  for (const std::int64_t id : more)
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
}

ordered_json value_of(const Ids& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? ordered_json(ids.front()) : ordered_json(ids);
}

/// eos_token_id of one file: as `given` there, after the tokens that no given file lists. Nothing if there are
/// none.
void write_ends(ordered_json& table, const HfWriteOptions& options, const json& given) {
  Ids known = ids_in(kept_table(options.kept), eos);
  add_new(known, ids_in(kept_table(options.kept_generation), eos));
  Ids ends;
  for (const std::int64_t id : options.eos_token_ids)
    if (std::ranges::find(known, id) == known.end()) ends.push_back(id);
  if (ends.empty() && given.contains(eos)) table[eos] = given[eos];
  if (ends.empty()) return;
  add_new(ends, ids_in(given, eos));
  table[eos] = value_of(ends);
}

}  // namespace

json kept_table(const std::string& kept) {
  if (kept.empty()) return json::object();
  json table = io::parse_json("kept keys of config.json or generation_config.json", kept);
  if (!table.is_object()) throw CheckpointError("kept keys of config.json are no table; get an intact copy");
  return table;
}

void add_generation_config(std::string_view text, const std::string& file, HfConfig& read) {
  const json table = io::parse_json(file, text);
  if (!table.is_object()) throw CheckpointError(fmt::format("{}: is not a table; get an intact copy", file));
  Mistakes mistakes;
  add_new(read.eos_token_ids, token_ids(JsonObject(table, "", mistakes), eos));
  raise(mistakes, fmt::format("{}: cannot be read as it is", file));
  read.kept_generation = table.dump(-1, ' ', false, json::error_handler_t::replace);
}

void write_special_tokens(ordered_json& config, const HfWriteOptions& options, bool refuses_null) {
  // LlamaConfig's own defaults are 1 and 2, ordinary tokens of other vocabularies: so null is written where there is
  // none, unless the class refuses it.
  if (options.bos_token_id)
    config[bos] = *options.bos_token_id;
  else if (!refuses_null)
    config[bos] = nullptr;
  config[eos] = options.kept.empty() ? value_of(options.eos_token_ids) : ordered_json();
  if (!options.kept.empty()) write_ends(config, options, kept_table(options.kept));
}

void write_generation_tokens(ordered_json& generation, const HfWriteOptions& options) {
  const json given = kept_table(options.kept_generation);
  const Ids before = ids_in(kept_table(options.kept), bos);
  const bool same =
      before.empty() ? !options.bos_token_id : options.bos_token_id && before.front() == *options.bos_token_id;
  if (options.kept_generation.empty() || (!same && options.bos_token_id))
    generation[bos] = options.bos_token_id ? ordered_json(*options.bos_token_id) : ordered_json();
  if (options.kept_generation.empty())
    generation[eos] = value_of(options.eos_token_ids);
  else
    write_ends(generation, options, given);
}

}  // namespace trireme::huggingface

// SPDX-License-Identifier: Apache-2.0
// Every key of every family's config.json, in every dialect: changed, it is another model or a refusal that names it;
// left out, the value that its class has then, or a refusal that names it. No key is read and forgotten.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "huggingface/bookkeeping_keys.hpp"
#include "huggingface/files.hpp"
#include "huggingface/sound_config.hpp"
#include "trireme/base/error.hpp"
#include "trireme/huggingface/huggingface.hpp"

namespace trireme::huggingface::every_key_test {
namespace {

/// Calls it with every key, also of the tables in the table, as "rope_scaling/factor".
void for_each_key(const json& table, const std::string& where, const std::function<void(const std::string&)>& visit) {
  for (const auto& [key, value] : table.items()) {
    visit(where + key);
    if (value.is_object()) for_each_key(value, where + key + "/", visit);
  }
}

json& at(json& config, const std::string& path) { return config[json::json_pointer("/" + path)]; }

/// Another value of the same kind.
json changed(const json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>() + 1;
  if (value.is_number()) return 1.25 * value.get<double>() + 0.125;
  if (value.is_string()) return value.get<std::string>() + "x";
  if (value.is_array() && !value.empty()) {
    json list = value;
    list.front() = list.front() == "full_attention"      ? json("sliding_attention")
                   : list.front() == "sliding_attention" ? json("full_attention")
                                                         : changed(list.front());
    return list;
  }
  return {};
}

/// Result of reading a config.json: all of its settings or, if refused, the message.
struct Outcome {
  std::string text, message;
  bool warns = false;
};

Outcome read(const json& config) {
  try {
    const HfConfig found = parse_hf_config(config.dump(), "config.json");
    HfWriteOptions options;
    if (found.max_position_embeddings > 0) options.max_position_embeddings = found.max_position_embeddings;
    options.bos_token_id = found.bos_token_id;
    options.eos_token_ids = found.eos_token_ids;
    return {
        .text = hf_config_text(model::build(found.model), options), .message = "", .warns = !found.unread_keys.empty()};
  } catch (const Error& error) {
    return {.text = "", .message = error.what()};
  }
}

/// Whether a message has the key, or the corresponding member of the run file.
bool names(const std::string& message, const std::string& path) {
  std::string key = path.substr(path.find_last_of('/') + 1);
  if (key == "use_sliding_window") key = "sliding_window";  // there are layers that have one, or none
  if (key == "num_hidden_layers") key = "layers";           // of which a list has another number
  return message.find(key) != std::string::npos || message.find("model.") != std::string::npos ||
         message.find(path.substr(0, path.find('/'))) != std::string::npos;
}

/// Keys of which no value changes what is computed here.
bool plays_no_part(const model::Architecture& a, const std::string& path) {
  const bool drops = std::ranges::find(a.dropout, path) != a.dropout.end() ||
                     (a.published_with_dropout && path == "attention_dropout");
  return drops || changes_no_values(path);
}

TEST(EveryKey, ChangedIsAnotherModelOrARefusalThatNamesIt) {
  int differ = 0, refused = 0;
  for (const model::Architecture& a : model::architectures())
    for (std::size_t dialect = 0; dialect < dialects; ++dialect) {
      const json config = in_dialect(sound(a), dialect);
      const Outcome sane = read(config);
      ASSERT_EQ(sane.message, "") << a.name;
      for_each_key(config, "", [&](const std::string& path) {
        json other = config;
        json& value = at(other, path);
        if (value.is_null() || value.is_object() || (value.is_array() && value.empty()) || plays_no_part(a, path))
          return;
        value = changed(value);
        SCOPED_TRACE(std::string(a.name) + " " + path + " = " + value.dump());
        const Outcome now = read(other);
        if (now.message.empty()) {
          ++differ;
          EXPECT_TRUE(now.text != sane.text || now.warns) << "read, and nothing comes of it";
        } else {
          ++refused;
          EXPECT_TRUE(names(now.message, path)) << now.message;
        }
      });
    }
  EXPECT_GT(differ, 500);
  EXPECT_GT(refused, 100);
}

TEST(EveryKey, LeftOutIsItsClassesDefaultOrARefusalThatNamesIt) {
  int missing = 0, defaults = 0;
  for (const model::Architecture& a : model::architectures())
    for (std::size_t dialect = 0; dialect < dialects; ++dialect) {
      const json config = in_dialect(sound(a), dialect);
      for_each_key(config, "", [&](const std::string& path) {
        json other = config;
        const std::size_t slash = path.find_last_of('/');
        (slash == std::string::npos ? other : at(other, path.substr(0, slash))).erase(path.substr(slash + 1));
        SCOPED_TRACE(std::string(a.name) + " without " + path);
        const Outcome now = read(other);
        EXPECT_TRUE(now.message.empty() || names(now.message, path)) << now.message;
        ++(now.message.empty() ? defaults : missing);
        if (now.message.empty()) {
          EXPECT_EQ(read(json::parse(now.text)).text, now.text) << "is not what is written";
        }
      });
    }
  EXPECT_GT(missing, 300);
  EXPECT_GT(defaults, 300);
}

/// Sizes that contradict each other, in both forms.
TEST(EveryKey, SizesThatContradictEachOtherAreRefusedByName) {
  for (const model::Architecture& a : model::architectures()) {
    SCOPED_TRACE(a.name);
    const json config = sound(a);
    const auto refused = [&](const char* key, const json& value) {
      json other = config;
      if (!other.contains(key)) return;
      other[key] = value;
      const Outcome now = read(other);
      EXPECT_FALSE(now.message.empty()) << key << " = " << value;
      EXPECT_TRUE(names(now.message, key)) << now.message;
    };
    for (const char* key :
         {"hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "vocab_size", "head_dim",
          "intermediate_size", "n_embd", "n_head", "n_layer", "n_positions"})
      for (const json& value : {json(0), json(-1), json(2.5), json("7"), json::array(), json(std::int64_t{1} << 40)})
        refused(key, value);
    refused("num_key_value_heads", 3);  // of 4 heads
    refused("num_attention_heads", 3);  // and 2 of keys
    refused("head_dim", 5);             // no pairs
    refused("layer_types", {"full_attention"});
    refused("num_experts_per_tok", 4);  // of 3
    refused("n_head", 3);               // of 8
  }
}

}  // namespace
}  // namespace trireme::huggingface::every_key_test

// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sidecar.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/input_file.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t version = 1;
constexpr std::int64_t most_bytes = std::int64_t{256} << 20;  // names and hashes of more than a million sources

Json or_null(const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(nullptr); }
Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

/// Reads the keys of FILE.meta.
class SidecarReader {
 public:
  SidecarReader(const nlohmann::json& object, std::string name) : object_(object), name_(std::move(name)) {}

  [[nodiscard]] std::int64_t count(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || !found->is_number_integer() || found->get<std::int64_t>() < 0)
      damaged(fmt::format("\"{}\" is not a count", key));
    return found->get<std::int64_t>();
  }
  [[nodiscard]] std::optional<std::int64_t> count_or_null(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) return std::nullopt;
    return count(key);
  }
  [[nodiscard]] std::string text(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || !found->is_string()) damaged(fmt::format("\"{}\" is not a text", key));
    return found->get<std::string>();
  }
  [[nodiscard]] std::string text_or_null(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? "" : text(key);
  }
  [[nodiscard]] SidecarReader object(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || !found->is_object()) damaged(fmt::format("\"{}\" is not an object", key));
    return {*found, name_};
  }
  [[nodiscard]] std::vector<SidecarReader> list(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || !found->is_array()) damaged(fmt::format("\"{}\" is not a list", key));
    std::vector<SidecarReader> objects;
    for (const nlohmann::json& item : *found) {
      if (!item.is_object()) damaged(fmt::format("\"{}\" is not a list of objects", key));
      objects.emplace_back(item, name_);
    }
    return objects;
  }
  [[nodiscard]] std::string json() const { return object_.dump(-1, ' ', false, Json::error_handler_t::replace); }

  [[noreturn]] void damaged(const std::string& what) const {
    throw DataError(
        fmt::format("{}: {}; tokenize again, or remove it and the .ends file to read the tokens without a "
                    "sidecar",
                    name_, what));
  }

 private:
  const nlohmann::json& object_;
  std::string name_;
};

}  // namespace

std::string sidecar_path(const std::string& tokens_path) { return tokens_path + ".meta"; }
std::string ends_path(const std::string& tokens_path) { return tokens_path + ".ends"; }

Sidecar read_sidecar(const std::string& tokens_path) {
  const io::InputFile file(sidecar_path(tokens_path), "sidecar");
  const nlohmann::json json = io::parse_or_discard(file.read_whole(most_bytes));
  const SidecarReader reader(json, file.name());
  if (!json.is_object()) reader.damaged("it is not a JSON object");
  if (const std::int64_t found = reader.count("version"); found != version)
    reader.damaged(fmt::format("version {} is not known, only version {}", found, version));
  const SidecarReader tokenizer = reader.object("tokenizer"), hashes = reader.object("xxh3");
  Sidecar sidecar{.dtype = reader.text("dtype"),
                  .tokens = reader.count("tokens"),
                  .documents = reader.count("documents"),
                  .targets = reader.count("targets"),
                  .text_bytes = reader.count("text_bytes"),
                  .vocab_size = reader.count_or_null("vocab_size"),
                  .document_begin = reader.count_or_null("document_begin"),
                  .document_end = reader.count_or_null("document_end"),
                  .tokenizer = {.spec = tokenizer.text("spec"),
                                .fingerprint = tokenizer.text("fingerprint"),
                                .definition = tokenizer.text_or_null("definition"),
                                .library = tokenizer.text("library")},
                  .options = reader.object("options").json(),
                  .sources = {},
                  .tokens_xxh3 = hashes.text_or_null("tokens"),
                  .ends_xxh3 = hashes.text_or_null("ends"),
                  .mask_xxh3 = hashes.text_or_null("mask")};
  if (sidecar.dtype != "uint16" && sidecar.dtype != "uint32")
    reader.damaged(fmt::format("\"dtype\" is {}, neither uint16 nor uint32", io::in_quotes(sidecar.dtype)));
  for (const SidecarReader& source : reader.list("sources"))
    sidecar.sources.push_back(
        {.name = source.text("name"), .bytes = source.count("size"), .xxh3 = source.text_or_null("hash")});
  return sidecar;
}

std::string to_json(const Sidecar& sidecar) {
  Json sources = Json::array();
  for (const SidecarSource& source : sidecar.sources)
    sources.push_back({{"name", source.name}, {"size", source.bytes}, {"hash", or_null(source.xxh3)}});
  const Json json{{"version", version},
                  {"dtype", sidecar.dtype},
                  {"tokens", sidecar.tokens},
                  {"documents", sidecar.documents},
                  {"targets", sidecar.targets},
                  {"text_bytes", sidecar.text_bytes},
                  {"vocab_size", or_null(sidecar.vocab_size)},
                  {"document_begin", or_null(sidecar.document_begin)},
                  {"document_end", or_null(sidecar.document_end)},
                  {"tokenizer",
                   {{"spec", sidecar.tokenizer.spec},
                    {"fingerprint", sidecar.tokenizer.fingerprint},
                    {"definition", or_null(sidecar.tokenizer.definition)},
                    {"library", sidecar.tokenizer.library}}},
                  {"options", Json::parse(sidecar.options)},
                  {"sources", std::move(sources)},
                  {"xxh3",
                   {{"tokens", or_null(sidecar.tokens_xxh3)},
                    {"ends", or_null(sidecar.ends_xxh3)},
                    {"mask", or_null(sidecar.mask_xxh3)}}}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trireme::data

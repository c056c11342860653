// SPDX-License-Identifier: Apache-2.0
//
// A SentencePiece model as the tokenizer.json of Hugging Face's tokenizers library: byte-pair encoding or unigram, with
// the model's normalization.
#include "tokenizer/sentencepiece_json.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <vector>

#include "tokenizer/model/vocabulary.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"

namespace trireme::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

using hf::space_piece;

/// Reads the fields of a protocol buffer, one after another. Throws DataError when it ends early.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  /// False at the end. Then `number` (of a varint) or `bytes` (of a string, message or fixed number) is the value.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t key = varint();
    field = static_cast<int>(key >> 3);
    number = 0;
    bytes = {};
    switch (key & 7) {
      case 0: number = varint(); break;
      case 1: bytes = take(8); break;
      case 2: bytes = take(varint()); break;
      case 5: bytes = take(4); break;
      default: damaged();
    }
    return true;
  }

  int field = 0;
  std::uint64_t number = 0;
  std::string_view bytes;

 private:
  [[noreturn]] static void damaged() { throw DataError("a SentencePiece model is damaged; get an intact copy"); }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) damaged();
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) damaged();
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

/// Fields of sentencepiece_model.proto that its C++ interface does not expose.
struct ModelSpec {
  enum class Type : std::uint64_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  Type type = Type::unigram;
  bool byte_fallback = false;
  bool space_as_suffix = false;
  std::string_view charsmap;  ///< normalization, compiled
  bool prefix_space = true;
  bool remove_extra_spaces = true;
  std::vector<bool> named;  ///< by id: a piece that the user of spm_train named, found before all others
};

ModelSpec read_spec(std::string_view model) {
  ModelSpec spec;
  constexpr std::uint64_t user_defined = 4;
  for (Fields fields(model); fields.next();) {
    if (fields.field == 1) {  // pieces
      spec.named.push_back(false);
      for (Fields piece(fields.bytes); piece.next();)
        if (piece.field == 3) spec.named.back() = piece.number == user_defined;
    }
    if (fields.field == 2)  // trainer_spec
      for (Fields trainer(fields.bytes); trainer.next();) {
        if (trainer.field == 3) spec.type = static_cast<ModelSpec::Type>(trainer.number);
        if (trainer.field == 24) spec.space_as_suffix = trainer.number != 0;
        if (trainer.field == 35) spec.byte_fallback = trainer.number != 0;
      }
    if (fields.field == 3)  // normalizer_spec
      for (Fields normalizer(fields.bytes); normalizer.next();) {
        if (normalizer.field == 2) spec.charsmap = normalizer.bytes;
        if (normalizer.field == 3) spec.prefix_space = normalizer.number != 0;
        if (normalizer.field == 4) spec.remove_extra_spaces = normalizer.number != 0;
      }
  }
  return spec;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : digits[word >> (18 - 6 * k) & 63];
  }
  return text;
}

Json replace(const char* kind, std::string_view pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
}

/// `text` as a regular expression that matches it alone.
std::string as_pattern(std::string_view text) {
  std::string pattern;
  for (const char character : text) {
    if (std::string_view("\\.^$|()[]{}*+?").find(character) != std::string_view::npos) pattern += '\\';
    pattern += character;
  }
  return pattern;
}

/// The blank in front of a text, also before user-defined symbols. `tokenizers` normalizes these symbols themselves as
/// well: they get none.
Json prefix_space(const std::vector<std::string>& symbols) {
  if (symbols.empty()) return {{"type", "Prepend"}, {"prepend", space_piece}};
  std::string any;
  for (const std::string& symbol : symbols) any += (any.empty() ? "" : "|") + as_pattern(symbol);
  return replace("Regex", "\\A(?!(?:" + any + ")\\z)(?=[\\s\\S])", space_piece);
}

Json normalizer(const ModelSpec& spec, const std::vector<std::string>& symbols) {
  Json steps = Json::array();
  if (!spec.charsmap.empty())
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(spec.charsmap)}});
  if (spec.remove_extra_spaces) {
    steps.push_back(replace("Regex", "\\A +| +\\z", ""));
    steps.push_back(replace("Regex", " {2,}", " "));
  }
  if (spec.prefix_space) steps.push_back(prefix_space(symbols));
  steps.push_back(replace("String", " ", space_piece));
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

Json decoder(const ModelSpec& spec) {
  Json steps = Json::array({replace("String", space_piece, " ")});
  if (spec.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (spec.prefix_space) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

Json unigram(const sentencepiece::SentencePieceProcessor& model, const ModelSpec& spec) {
  Json vocabulary = Json::array();
  for (int id = 0; id < model.GetPieceSize(); ++id)
    vocabulary.push_back(Json::array({model.IdToPiece(id), model.GetScore(id)}));
  return {{"type", "Unigram"},
          {"unk_id", model.unk_id()},
          {"vocab", std::move(vocabulary)},
          {"byte_fallback", spec.byte_fallback}};
}

/// Every way to put a piece together from two others, the best pieces first.
Json merges(const sentencepiece::SentencePieceProcessor& model) {
  std::map<std::string_view, int> ids;
  std::vector<std::string> pieces;
  for (int id = 0; id < model.GetPieceSize(); ++id) pieces.push_back(model.IdToPiece(id));
  for (int id = 0; id < model.GetPieceSize(); ++id)
    if (!model.IsControl(id) && !model.IsUnknown(id) && !model.IsByte(id))
      ids.emplace(pieces[static_cast<std::size_t>(id)], id);
  struct Merge {
    float score;
    int left, right;
  };
  std::vector<Merge> all;
  for (const auto& [piece, id] : ids)
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = ids.find(piece.substr(0, cut));
      const auto right = left == ids.end() ? left : ids.find(piece.substr(cut));
      if (right != ids.end()) all.push_back({model.GetScore(id), left->second, right->second});
    }
  std::sort(all.begin(), all.end(), [](const Merge& a, const Merge& b) {
    return std::tuple(-a.score, a.left, a.right) < std::tuple(-b.score, b.left, b.right);
  });
  Json list = Json::array();
  for (const Merge& merge : all)
    list.push_back(
        Json::array({pieces[static_cast<std::size_t>(merge.left)], pieces[static_cast<std::size_t>(merge.right)]}));
  return list;
}

Json byte_pairs(const sentencepiece::SentencePieceProcessor& model, const ModelSpec& spec) {
  Json vocabulary = Json::object();
  for (int id = 0; id < model.GetPieceSize(); ++id) vocabulary[model.IdToPiece(id)] = id;
  return {{"type", "BPE"},
          {"unk_token", model.IdToPiece(model.unk_id())},
          {"fuse_unk", true},
          {"byte_fallback", spec.byte_fallback},
          {"vocab", std::move(vocabulary)},
          {"merges", merges(model)}};
}

/// Marks without text, and user-defined symbols, which are found in the normalized text, after the blank in front.
Json added_tokens(const sentencepiece::SentencePieceProcessor& model, const ModelSpec& spec) {
  Json tokens = Json::array();
  for (int id = 0; id < model.GetPieceSize(); ++id) {
    const bool mark = model.IsControl(id) || model.IsUnknown(id);
    const bool named = spec.named.at(static_cast<std::size_t>(id));
    if (mark || named)
      tokens.push_back({{"id", id},
                        {"content", model.IdToPiece(id)},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", !mark},
                        {"special", mark}});
  }
  return tokens;
}

std::vector<std::string> symbols_of(const sentencepiece::SentencePieceProcessor& model, const ModelSpec& spec) {
  std::vector<std::string> symbols;
  for (int id = 0; id < model.GetPieceSize(); ++id)
    if (spec.named.at(static_cast<std::size_t>(id))) symbols.push_back(model.IdToPiece(id));
  return symbols;
}

Json post_processor(const std::string& bos, int id) {
  const Json begin{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const auto text = [](const char* name, int type) { return Json{{"Sequence", {{"id", name}, {"type_id", type}}}}; };
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({begin, text("A", 0)})},
          {"pair", Json::array({begin, text("A", 0), begin, text("B", 1)})},
          {"special_tokens", {{bos, {{"id", bos}, {"ids", Json::array({id})}, {"tokens", Json::array({bos})}}}}}};
}

}  // namespace

std::map<std::string, std::string> sentencepiece_export_files(const std::string& name, const std::string& model,
                                                              const Marks& marks) {
  sentencepiece::SentencePieceProcessor processor;
  if (!processor.LoadFromSerializedProto(model).ok())
    throw DataError(name + " is not a SentencePiece model; give the .model file that spm_train wrote");
  Json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"unk_token", processor.IdToPiece(processor.unk_id())},
              {"eos_token", processor.IdToPiece(marks.end)},
              {"bos_token", marks.bos ? Json(processor.IdToPiece(*marks.bos)) : Json(nullptr)},
              {"add_bos_token", marks.adds_bos},
              {"add_eos_token", false},
              {"clean_up_tokenization_spaces", false},
              {"trireme_tokenizer", "spm:tokenizer.model"}};
  // SentencePiece splits the text of a control piece into others.
  if (marks.splits_specials) config["split_special_tokens"] = true;
  std::map<std::string, std::string> files{{"tokenizer.model", model},
                                           {"tokenizer_config.json", config.dump(2) + "\n"}};
  const ModelSpec spec = read_spec(model);
  const bool known = spec.type == ModelSpec::Type::unigram || spec.type == ModelSpec::Type::bpe;
  if (!known || spec.space_as_suffix) {
    log::warning(
        fmt::format("{}: has no form for transformers (words, characters or spaces as suffixes): exports hold "
                    "tokenizer.model, but no tokenizer.json",
                    name));
    return files;
  }
  const Json json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens(processor, spec)},
      {"normalizer", normalizer(spec, symbols_of(processor, spec))},
      {"pre_tokenizer", nullptr},
      {"post_processor", marks.adds_bos ? post_processor(processor.IdToPiece(*marks.bos), *marks.bos) : Json(nullptr)},
      {"decoder", decoder(spec)},
      {"model", spec.type == ModelSpec::Type::bpe ? byte_pairs(processor, spec) : unigram(processor, spec)}};
  files["tokenizer.json"] = json.dump() + "\n";
  return files;
}

}  // namespace trireme::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_tokenizer.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "tokenizer/config_beside.hpp"
#include "tokenizer/definition.hpp"
#include "tokenizer/model/vocabulary.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/input_file.hpp"

namespace trireme::tokenizer {
namespace {

using hf::space_piece;  // SentencePiece puts one in front of every text

/// The files of the largest open vocabularies, a quarter of a million pieces, have 5 MB.
constexpr std::int64_t largest_model_bytes = std::int64_t{256} << 20;

/// Throws DataError if the contents are those of another kind of tokenizer.
void refuse_other_kinds(const std::string& contents, const std::string& name, const std::string& path) {
  constexpr const char* converted =
      "load its folder with transformers (AutoTokenizer) and save_pretrained, which writes a tokenizer.json for hf:";
  const std::string_view head = std::string_view(contents).substr(0, 4096);
  if (contents.starts_with('{')) {
    const bool tekken = head.find("\"pattern\"") != std::string_view::npos &&
                        head.find("\"default_vocab_size\"") != std::string_view::npos;
    if (tekken) throw DataError(fmt::format("{} is a tekken.json of Mistral, which is not read; {}", name, converted));
    throw DataError(name + " is JSON: a Hugging Face tokenizer; give it as hf:" + path);
  }
  // Each line of a tiktoken file is a token in base64, a blank and its rank.
  const std::string_view line = head.substr(0, head.find('\n'));
  const std::size_t blank = line.find(' ');
  const auto base64 = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/' || c == '=';
  };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (blank != std::string_view::npos && blank > 0 && blank % 4 == 0 && blank + 1 < line.size() &&
      std::ranges::all_of(line.substr(0, blank), base64) && std::ranges::all_of(line.substr(blank + 1), digit))
    throw DataError(fmt::format("{} is a tiktoken file, which is not read; {}", name, converted));
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) {
    const io::InputFile file(path, "SentencePiece model");
    const std::string model = file.read_whole(largest_model_bytes);
    refuse_other_kinds(model, file.name(), path);
    if (model.empty() || !processor_.LoadFromSerializedProto(model).ok()) {
      throw DataError(file.name() + " is not a SentencePiece model; give the .model file that spm_train wrote");
    }
    read_beside(file.name(), read_config_beside(path, {}));
    keeps_white_space_ = !encode("\n").empty();
    definition_ = definition_of(model, document_begin(), end_);
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok()) throw DataError("SentencePiece cannot encode the text: " + status.ToString());
    return {ids.begin(), ids.end()};
  }

  /// A model that keeps white space adds a leading space
  /// that the document does not have: its piece is dropped.
  std::vector<std::int32_t> encode_continuation(std::string_view text) const override {
    std::vector<std::int32_t> ids = encode(text);
    if (keeps_white_space_ && !ids.empty() && processor_.IdToPiece(ids[0]) == space_piece) ids.erase(ids.begin());
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::vector<int> known;
    for (const std::int32_t id : ids) known.push_back(id >= 0 && id < vocab_size() ? id : processor_.unk_id());
    std::string text;
    const auto status = processor_.Decode(known, &text);
    if (!status.ok()) throw DataError("SentencePiece cannot decode the tokens: " + status.ToString());
    return text;
  }

  std::string piece(std::int32_t id) const override { return processor_.IdToPiece(id); }
  std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::vector<std::int32_t> document_begin() const override {
    return adds_bos_ ? std::vector{*bos_} : std::vector<std::int32_t>();
  }
  std::int32_t document_end() const override { return end_; }
  std::optional<std::int32_t> bos_token() const override { return bos_; }
  std::string definition() const override { return definition_; }
  std::vector<std::string> warnings() const override { return warnings_; }

 private:
  [[nodiscard]] bool is_piece(const std::string& text) const {
    const int id = processor_.PieceToId(text);
    return id != processor_.unk_id() || processor_.IdToPiece(id) == text;
  }

  /// Takes first and last tokens as transformers 5 does, which puts bos_token in front where add_bos_token is true.
  void read_beside(const std::string& name, const ConfigBeside& beside) {
    for (const auto* list : {&beside.listed, &beside.extra})
      for (const hf::AddedToken& token : *list)
        if (!is_piece(token.content))
          throw DataError(fmt::format(
              "{}: other files of its folder add the token \"{}\", which is no piece of the model; give the folder's "
              "tokenizer.json as hf:, or move the model to a separate folder to encode text without it",
              name, token.content));
    const auto id_of = [&](const char* key, const std::string& text, int own) -> std::optional<std::int32_t> {
      if (text.empty()) return own < 0 ? std::nullopt : std::optional<std::int32_t>(own);
      if (is_piece(text)) return processor_.PieceToId(text);
      throw DataError(fmt::format("{}: {} \"{}\" is no piece of {}", beside.file, key, text, name));
    };
    bos_ = id_of("bos_token", beside.bos, processor_.bos_id());
    const std::optional<std::int32_t> end = id_of("eos_token", beside.eos, processor_.eos_id());
    if (!end)
      throw DataError(name + " has no end-of-sentence piece, which ends a document; train it without --eos_id=-1");
    end_ = *end;
    const std::string& type = beside.tokenizer_class;
    adds_bos_ = beside.add_bos.value_or(type.starts_with("CodeLlama")) && bos_;
    if (!beside.add_bos && (type.starts_with("LlamaTokenizer") || type.starts_with("GemmaTokenizer")))
      warnings_.push_back(
          fmt::format("{}: {} without add_bos_token: transformers 4 puts {} before every text, transformers 5 and "
                      "Trireme nothing; write add_bos_token = true or false, as the model was trained",
                      beside.file, type, bos_ ? processor_.IdToPiece(*bos_) : "bos_token"));
  }

  std::optional<std::int32_t> bos_;
  std::int32_t end_ = 0;
  std::string definition_;
  bool adds_bos_ = false;
  std::vector<std::string> warnings_;
  sentencepiece::SentencePieceProcessor processor_;
  bool keeps_white_space_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model_path) {
  return std::make_unique<SentencePieceTokenizer>(model_path);
}

}  // namespace trireme::tokenizer

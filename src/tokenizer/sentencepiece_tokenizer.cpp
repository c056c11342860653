// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_tokenizer.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "tokenizer/model/vocabulary.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/input_file.hpp"

namespace trireme::tokenizer {
namespace {

using hf::space_piece;  // SentencePiece puts one in front of every text

/// Those of the largest open vocabularies, a quarter of a million pieces, have 5 MB.
constexpr std::int64_t largest_model_bytes = std::int64_t{256} << 20;

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) {
    const io::InputFile file(path, "SentencePiece model");
    const std::string model = file.read_whole(largest_model_bytes);
    if (model.starts_with('{')) {
      throw DataError(file.name() + " is JSON: a Hugging Face tokenizer; give it as hf:" + path);
    }
    if (model.empty() || !processor_.LoadFromSerializedProto(model).ok()) {
      throw DataError(file.name() + " is not a SentencePiece model; give the .model file that spm_train wrote");
    }
    if (processor_.eos_id() < 0) {
      throw DataError(file.name() +
                      " has no end-of-sentence piece, which ends a document; train it without --eos_id=-1");
    }
    keeps_white_space_ = !encode("\n").empty();
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok()) throw DataError("SentencePiece cannot encode the text: " + status.ToString());
    return {ids.begin(), ids.end()};
  }

  /// A model that keeps white space as it is sees a space in front that the document does not have: its piece is
  /// dropped.
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

  std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::int32_t document_end() const override { return processor_.eos_id(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
  bool keeps_white_space_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model_path) {
  return std::make_unique<SentencePieceTokenizer>(model_path);
}

}  // namespace trireme::tokenizer

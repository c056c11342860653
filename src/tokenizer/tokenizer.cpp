// SPDX-License-Identifier: Apache-2.0
#include "trireme/tokenizer/tokenizer.hpp"

#include <fmt/format.h>

#include "tokenizer/huggingface_tokenizer.hpp"
#include "tokenizer/sentencepiece_tokenizer.hpp"
#include "trireme/base/error.hpp"

namespace trireme::tokenizer {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    return {bytes, bytes + text.size()};
  }
  std::vector<std::int32_t> encode_continuation(std::string_view text) const override { return encode(text); }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id == document_end()) continue;
      if (id >= 0 && id < document_end()) {
        text += static_cast<char>(id);
      } else {
        text += "\ufffd";
      }
    }
    return text;
  }

  std::int64_t vocab_size() const override { return 257; }
  std::int32_t document_end() const override { return 256; }
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec) {
  constexpr std::string_view sentencepiece = "spm:";
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  if (spec.starts_with(sentencepiece) && spec.size() > sentencepiece.size()) {
    return make_sentencepiece_tokenizer(spec.substr(sentencepiece.size()));
  }
  constexpr std::string_view huggingface = "hf:";
  if (spec.starts_with(huggingface) && spec.size() > huggingface.size())
    return make_huggingface_tokenizer(spec.substr(huggingface.size()));
  throw ConfigError(fmt::format(
      "tokenizer \"{}\" is not known; it is \"bytes\", \"spm:MODEL\" with the path of a SentencePiece model, or "
      "\"hf:FILE\" with the path of a tokenizer.json",
      spec));
}

}  // namespace trireme::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "trireme/tokenizer/tokenizer.hpp"

#include "tokenizer/huggingface_tokenizer.hpp"
#include "tokenizer/sentencepiece_tokenizer.hpp"
#include "trireme/tokenizer/files.hpp"

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

  std::string piece(std::int32_t id) const override {
    return id == document_end() ? "" : std::string(1, static_cast<char>(id));
  }
  std::int64_t vocab_size() const override { return 257; }
  std::int32_t document_end() const override { return 256; }
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec) {
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  if (spec.starts_with("spm:") && spec.size() > 4) return make_sentencepiece_tokenizer(path_of_spec(spec));
  if (spec.starts_with("hf:") && spec.size() > 3) return make_huggingface_tokenizer(path_of_spec(spec));
  unknown_spec(spec);
}

}  // namespace trireme::tokenizer

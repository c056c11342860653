// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::tokenizer::hf {

/// Bytes [begin, end) of a text.
struct Range {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

/// A regular expression as the `tokenizers` package understands it, matched by PCRE2's compiler to machine code. Safe
/// from several threads.
class Regex {
 public:
  /// Throws DataError with `key`, the pattern's key in tokenizer.json, when PCRE2 cannot match the same.
  Regex(const std::string& pattern, const std::string& key);

  /// The first match in valid UTF-8 that begins at byte `from` or later. Throws DataError when matching exceeds its
  /// limits.
  [[nodiscard]] std::optional<Range> find(std::string_view text, std::size_t from) const;

 private:
  std::shared_ptr<const void> code_;
  std::string key_;
};

}  // namespace trireme::tokenizer::hf

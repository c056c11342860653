// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::tokenizer {

/// Names and versions of the libraries that compute the ids of the tokenizer `spec`, with commas between: Trireme, then
/// SentencePiece of a "spm:" tokenizer, PCRE2 and utf8proc of an "hf:" tokenizer.
[[nodiscard]] std::string library_of(const std::string& spec);

/// Libraries other than Trireme in both lists whose versions differ, as "sentencepiece 0.1.97, here 0.2.0".
[[nodiscard]] std::vector<std::string> other_versions(std::string_view made, std::string_view here);

}  // namespace trireme::tokenizer

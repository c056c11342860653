// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/config/run_config.hpp"

namespace trireme::config {

/// Text in data.train or data.validation: a file, a folder (its path ends with /) or a pattern, and options, as in
/// "web/*.jsonl.zst#field=content,skip_bad=10".
struct TextSource {
  std::string path;
  std::string field;          ///< of JSON lines; empty: "text" if the first file has JSON lines, else plain text
  std::string response;       ///< field of responses, whose tokens alone count in the loss
  std::string chat;           ///< "chatml" or "llama3": `field` holds messages
  std::string cache;          ///< folder of the token cache; empty: in the folder of the files, else the user's
  std::int64_t skip_bad = 0;  ///< lines that cannot be read and may be left out
  bool plain = false;         ///< files that are JSON are plain text
  friend bool operator==(const TextSource&, const TextSource&) = default;
};

/// Whether a source names text: a pattern (not of .bin or .idx), a folder, or a file with a name of text (.jsonl,
/// .json, .ndjson, .txt, also with .gz or .zst behind), each also with options. Looks at the name alone, so that every
/// rank decides alike.
[[nodiscard]] bool names_text(std::string_view source);

/// The text that `source` names, or what is expected instead.
[[nodiscard]] std::variant<TextSource, std::string> parse_text_source(const std::string& source);

/// Whether any source that the run reads names text.
[[nodiscard]] bool reads_text(const RunConfig& config);

}  // namespace trireme::config

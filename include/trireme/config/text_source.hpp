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
/// .json, .ndjson, .txt, also with .gz or .zst behind), each also with options other than MixOptions. Looks at the name
/// alone, so that every rank decides alike.
[[nodiscard]] bool names_text(std::string_view source);

/// The text that `source` names, or what is expected instead. MixOptions are left out.
[[nodiscard]] std::variant<TextSource, std::string> parse_text_source(const std::string& source);

/// Limits of a source in a mixture, behind its path: "web.bin#epochs=4,temperature=2".
struct MixOptions {
  double epochs = 0;       ///< times that the run sees it at most; 0: no limit
  double temperature = 0;  ///< not 0: its weight is times tokens^(1 / temperature)
};
[[nodiscard]] MixOptions mix_options_of(const std::string& source);
/// The source without them.
[[nodiscard]] std::string without_mix_options(const std::string& source);
/// A source with one more option behind its path.
[[nodiscard]] std::string with_option(const std::string& source, const std::string& option);

/// Whether a source of data.train has such limits.
[[nodiscard]] bool mixes_by_size(const RunConfig& config);

/// Whether the token files and weights of the run are known only when its sources were looked at: it reads text, or
/// mixes sources by their sizes.
[[nodiscard]] bool resolves_sources(const RunConfig& config);

}  // namespace trireme::config

// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/document_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"

namespace trireme::data {
namespace {

/// Ends of documents in a sample of a token file.
struct EndCounts {
  std::int64_t tokens = 0;
  std::int64_t ends = 0;
  std::int64_t first_pair = -1;  ///< position of an end directly after another
};

EndCounts count_ends(const TokenFile& file, std::int64_t document_end) {
  constexpr std::int64_t part_tokens = 1 << 20;
  EndCounts counts;
  std::vector<std::int32_t> tokens;
  const std::int64_t parts = file.tokens() > 3 * part_tokens ? 3 : 1;
  for (std::int64_t i = 0; i < parts; ++i) {
    tokens.resize(static_cast<std::size_t>(parts == 1 ? file.tokens() : part_tokens));
    const std::int64_t first = parts == 1 ? 0 : (file.tokens() - part_tokens) / 2 * i;
    file.read(first, tokens);
    counts.tokens += static_cast<std::int64_t>(tokens.size());
    counts.ends += std::ranges::count(tokens, document_end);
    const auto pair = std::ranges::adjacent_find(
        tokens, [&](std::int32_t a, std::int32_t b) { return a == document_end && b == document_end; });
    if (pair != tokens.end() && counts.first_pair < 0) counts.first_pair = first + (pair - tokens.begin()) + 1;
  }
  return counts;
}

void warn_of_file(const TokenFile& file, std::int64_t end) {
  const auto warn = [&](const std::string& what) {
    log::warning(fmt::format(
        "data.document_mask: {} has neither a sidecar nor an index, so data.document_end = {} ends its documents, but "
        "{}; tokenize again with trireme tokenize, which writes where documents end",
        file.path(), end, what));
  };
  if (file.masked())
    warn(
        "it has a mask of targets: if it holds chats whose tokenizer ends messages with that token, each message is a "
        "document of its own, and answers do not see their questions");
  const EndCounts counts = count_ends(file, end);
  if (counts.ends == 0) {
    warn(fmt::format("none of {} sampled tokens is one: attention is not masked", counts.tokens));
  } else if (counts.first_pair >= 0) {
    warn(
        fmt::format("token {} is one directly behind another: where documents begin with the token that ends them, "
                    "their text does not see their beginning",
                    counts.first_pair));
  }
}

}  // namespace

void require_known_documents(const TokenFile& file) {
  if (file.has_document_ends()) return;
  throw ConfigError(fmt::format(
      "data.packing = \"best_fit\" is set, but where the documents of {} end is not known: it has neither a sidecar "
      "({}) nor a Megatron index; tokenize again with trireme tokenize, or set data.packing = \"concatenate\"",
      file.path(), sidecar_path(file.path())));
}

void require_document_ends(const config::Data& data, std::span<const Dataset> datasets) {
  const bool packs = data.packing == config::Packing::best_fit;
  if (!data.document_mask || (data.document_end && !packs)) return;
  for (const Dataset& dataset : datasets)
    for (const TokenFile& file : dataset.files()) {
      if (packs) require_known_documents(file);
      if (file.has_document_ends()) continue;
      throw ConfigError(fmt::format(
          "data.document_mask is set, but where the documents of {} end is not known: it has neither a sidecar ({}) "
          "nor a Megatron index; set data.document_end to the token id that ends a document (256 for tokenizer "
          "\"bytes\"; the EOS id of other tokenizers), or tokenize again with trireme tokenize",
          file.path(), sidecar_path(file.path())));
    }
}

void warn_of_document_ends(std::span<const Dataset> datasets, std::optional<std::int64_t> document_end) {
  if (!document_end) return;
  for (const Dataset& dataset : datasets)
    for (const TokenFile& file : dataset.files())
      if (!file.has_document_ends()) warn_of_file(file, *document_end);
}

}  // namespace trireme::data

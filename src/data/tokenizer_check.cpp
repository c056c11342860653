// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/tokenizer_check.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/tokenizer/library.hpp"

namespace trireme::data {

void require_tokenizer(std::span<const Dataset> datasets, const tokenizer::Tokenizer& tokenizer,
                       const std::string& described, const std::string& remedy) {
  std::string fingerprint;  // computed where a file has one to compare
  for (const Dataset& dataset : datasets)
    for (const TokenFile& file : dataset.files()) {
      if (!file.sidecar()) continue;
      if (fingerprint.empty()) fingerprint = tokenizer::vocabulary_fingerprint(tokenizer);
      const tokenizer::Identity& made = file.sidecar()->tokenizer;
      if (made.fingerprint == fingerprint) continue;
      throw DataError(
          fmt::format("token file {} was tokenized with {} (fingerprint {:.12}), but {} (fingerprint {:.12}); {}",
                      file.path(), made.spec, made.fingerprint, described, fingerprint, remedy));
    }
}

namespace {

/// "hf" of "hf:tokenizer.json".
std::string_view scheme_of(std::string_view spec) { return spec.substr(0, spec.find(':')); }

/// First tokens of documents in `sidecar` where the tokenizer has others; "" if it has the same, and where a
/// document begins with several.
std::string other_marks(const Sidecar& sidecar, const tokenizer::Tokenizer& tokenizer) {
  const auto text = [](const std::optional<std::int64_t>& id) { return id ? std::to_string(*id) : "none"; };
  const auto compare = [&](const char* verb, const std::optional<std::int64_t>& made,
                           const std::optional<std::int64_t>& now) {
    return made == now ? ""
                       : fmt::format("its documents {} with token {}, those of the tokenizer with {}", verb, text(made),
                                     text(now));
  };
  const std::vector<std::int32_t> begin = tokenizer.document_begin();
  const std::string begins = begin.size() > 1 ? ""
                                              : compare("begin", sidecar.document_begin,
                                                        begin.empty() ? std::optional<std::int64_t>()
                                                                      : std::optional<std::int64_t>(begin.front()));
  return !begins.empty() ? begins : compare("end", sidecar.document_end, tokenizer.document_end());
}

}  // namespace

void warn_of_other_ids(std::span<const Dataset> datasets, const std::string& spec,
                       const tokenizer::Tokenizer& tokenizer) {
  const std::string here = tokenizer::library_of(spec);
  for (const Dataset& dataset : datasets)
    for (const TokenFile& file : dataset.files()) {
      if (!file.sidecar()) continue;
      const tokenizer::Identity& made = file.sidecar()->tokenizer;
      if (const std::string marks = other_marks(*file.sidecar(), tokenizer); !marks.empty())
        log::warning(fmt::format("token file {} was tokenized with {}: {}; tokenize again with {} to have the same",
                                 file.path(), made.spec, marks, spec));
      else if (!made.definition.empty() && scheme_of(made.spec) == scheme_of(spec) &&
               made.definition != tokenizer.definition())
        log::warning(
            fmt::format("token file {} was tokenized with {}, whose merges, scores, added tokens or rules of text are "
                        "not those of {}, though the vocabulary is: text may have other ids; tokenize again with {}",
                        file.path(), made.spec, spec, spec));
      const std::vector<std::string> others = tokenizer::other_versions(file.sidecar()->tokenizer.library, here);
      if (!others.empty())
        log::warning(fmt::format(
            "token file {} was tokenized with {}: versions may give other ids where two tokenizations score alike",
            file.path(), join(others, "; ")));
    }
}

}  // namespace trireme::data

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

void warn_of_other_libraries(std::span<const Dataset> datasets, const std::string& spec) {
  const std::string here = tokenizer::library_of(spec);
  for (const Dataset& dataset : datasets)
    for (const TokenFile& file : dataset.files()) {
      if (!file.sidecar()) continue;
      const std::vector<std::string> others = tokenizer::other_versions(file.sidecar()->tokenizer.library, here);
      if (!others.empty())
        log::warning(fmt::format(
            "token file {} was tokenized with {}: versions may give other ids where two tokenizations score alike",
            file.path(), join(others, "; ")));
    }
}

}  // namespace trireme::data

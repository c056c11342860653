// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/config/run_config.hpp"
#include "trireme/data/tokenize_together.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::data {

/// Reactions while token caches are looked for and made.
struct TokenCacheWork {
  int threads = 1;                                                                        ///< of a rank, that encode
  std::function<void(const std::string& described, const TokenizeProgress&)> progress{};  ///< on the first rank
  std::function<void()> mark{};                                                           ///< as TokenizeTogether
  mpi::Progress files{};
};

/// The sources of `config` with each text replaced by the token file of its cache; text sources in a row with the same
/// options, without weights and of one validation set, share a cache, so that samples cross their files.
///
/// A cache is the token file that tokenize_files writes, in .trireme-tokens in the folder of the files, in the
/// option `cache` of the source, or, where the files are read-only, in the user's cache folder. Its name is a hash of
/// tokenizer, options, and size and hash of each file; a list of their sizes and times leads to it, so that later
/// starts read metadata only, and hash again what changed. All ranks make a missing cache; another job that needs it at
/// the same time waits for it. Parts of a job that was killed are taken over.
/// Throws CollectiveError as tokenize_together. Collective over `world`; without text it does nothing.
[[nodiscard]] config::RunConfig with_token_caches(const mpi::Communicator& world, config::RunConfig config,
                                                  const TokenCacheWork& work);

}  // namespace trireme::data

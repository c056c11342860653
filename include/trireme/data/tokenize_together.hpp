// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/data/tokenize.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::data {

/// How far the ranks of a job are.
struct TokenizeProgress {
  std::int64_t bytes = 0;      ///< of the files, before decompression, read by all ranks since the start
  std::int64_t all_bytes = 0;  ///< that had to be read at the start
  std::int64_t ranks = 1;      ///< at work
  double seconds = 0;
};

/// Reactions while ranks tokenize.
struct TokenizeTogether {
  /// Folder of the parts, which every rank sees; they stay after a failure, and the next call continues from them.
  std::string parts;
  /// Name in messages, such as "web.bin".
  std::string described;
  /// Called on the first rank, every two seconds.
  std::function<void(const TokenizeProgress&)> progress{};
  /// Called on every rank when some rank has made progress, at least every few seconds.
  std::function<void()> mark{};
  /// The same for work of the first rank alone.
  mpi::Progress files{};
};

/// An input as it was when its tokens were made.
struct TokenizedInput {
  std::int64_t bytes = 0;
  std::int64_t changed = 0;  ///< modification time, in nanoseconds
  std::string xxh3;
};

/// Result of `tokenize_together` on the first rank; elsewhere empty.
struct TokenizedTogether {
  TokenizeCounts counts;
  std::vector<TokenizedInput> inputs;
  std::vector<std::int64_t> work_bytes;  ///< by rank: bytes of text, a byte of a compressed file counted as four
};

/// The files that tokenize_files writes, byte for byte, by all ranks of a job: each tokenizes units of the files into
/// parts, and the first joins them. Units of uncompressed JSON lines are pieces of a file; other files are units of
/// their own. inputs: of the first rank, as text::expand_inputs gives them. Throws CollectiveError, on all ranks within
/// seconds after any has failed, with the code of tokenize_files; with 8 when the disk has too little space; with 5
/// when a rank does not see `parts`. Collective over `world`.
[[nodiscard]] TokenizedTogether tokenize_together(const mpi::Communicator& world, const tokenizer::Tokenizer& tokenizer,
                                                  const std::vector<std::string>& inputs, const std::string& output,
                                                  const TokenizeOptions& options, const TokenizeTogether& together);

}  // namespace trireme::data

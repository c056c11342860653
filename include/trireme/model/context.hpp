// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Context parallelism: every sequence divided over ranks that hold the same parameters.
namespace trireme::model {

struct Model;

/// Which tokens of every sequence a context rank sees. A sequence is cut into 2 * ranks equal runs; a rank has those
/// numbered `rank` and 2 * ranks - 1 - rank, one with few keys before it and one with many, so that causal attention is
/// the same work on every rank (Llama 3, Dubey et al. 2024, section 3.3.2).
struct ContextPart {
  int rank = 0;
  int ranks = 1;
  friend bool operator==(const ContextPart&, const ContextPart&) = default;

  /// Tokens of a run. seq_len: of the whole sequence, a multiple of 2 * ranks.
  [[nodiscard]] constexpr std::int64_t run(std::int64_t seq_len) const { return seq_len / (2 * ranks); }
  /// Where this rank's first and second run begin in the sequence.
  [[nodiscard]] constexpr std::int64_t first_run(std::int64_t seq_len) const { return rank * run(seq_len); }
  [[nodiscard]] constexpr std::int64_t second_run(std::int64_t seq_len) const {
    return (2 * ranks - 1 - rank) * run(seq_len);
  }
  /// The position in the sequence of the token that is number `token` of those that this rank has of it.
  [[nodiscard]] constexpr std::int64_t position(std::int64_t token, std::int64_t seq_len) const {
    const std::int64_t length = run(seq_len);
    return token < length ? first_run(seq_len) + token : second_run(seq_len) + token - length;
  }
};

/// Attention in two stages, between which the keys and values of the whole sequence are gathered: projection, and
/// attend behind Join::gather_keys. Applied after the tensor plan; with one tensor rank the norms become stages of
/// their own here. Throws ConfigError for a decoder that does not norm what its branches read, or has experts.
[[nodiscard]] Model divide_sequences(Model model, const ContextPart& part);

}  // namespace trireme::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/ids.hpp"
#include "trireme/config/run_config.hpp"

/// Context parallelism: every sequence divided over ranks that hold the same parameters.
namespace trireme::model {

struct Model;

/// Which tokens of every sequence a context rank sees. A sequence is cut into 2 * ranks equal runs; a rank has those
/// numbered `rank` and 2 * ranks - 1 - rank, one with few keys before it and one with many, so that causal attention is
/// the same work on every rank (Llama 3, Dubey et al. 2024, section 3.3.2).
struct ContextPart {
  int rank = 0;
  int ranks = 1;
  config::ContextMethod method = config::ContextMethod::gather;
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

/// Attention in stages, between which ranks exchange what attention reads of whole sequences. gather: projection, and
/// attend behind Exchange::gather_keys. heads (Ulysses, Jacobs et al. 2023): projection, core_attention of some heads
/// of whole sequences behind Exchange::to_heads, output behind Exchange::to_tokens. Applied after the tensor plan; with
/// one tensor rank the norms become separate stages here. Throws ConfigError for heads that cannot be divided.
[[nodiscard]] Model divide_sequences(Model model, const ContextPart& part);

/// Values of a token that an exchange of heads before `stage` moves, of this tensor rank: queries, keys and values, or
/// attention's output.
[[nodiscard]] std::int64_t exchanged_width(const Model& model, Block block, Stage stage);

}  // namespace trireme::model

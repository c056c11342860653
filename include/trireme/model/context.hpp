// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/ids.hpp"
#include "trireme/config/run_config.hpp"

/// Context parallelism: every sequence divided over ranks that hold the same parameters.
namespace trireme::model {

struct Model;

/// The tokens of every sequence on a context rank. A sequence is divided into 2 * ranks equal runs; a rank has runs
/// `rank` and 2 * ranks - 1 - rank, one with few keys before it and one with many, so that causal attention takes the
/// same time on every rank (Llama 3, Dubey et al. 2024, section 3.3.2).
struct ContextPart {
  int rank = 0;
  int ranks = 1;
  config::ContextMethod method = config::ContextMethod::gather;
  friend bool operator==(const ContextPart&, const ContextPart&) = default;

  /// Tokens of a run. seq_len: of the whole sequence, a multiple of 2 * ranks.
  [[nodiscard]] constexpr std::int64_t run(std::int64_t seq_len) const { return seq_len / (2 * ranks); }
  /// Begins of this rank's first and second run in the sequence.
  [[nodiscard]] constexpr std::int64_t first_run(std::int64_t seq_len) const { return rank * run(seq_len); }
  [[nodiscard]] constexpr std::int64_t second_run(std::int64_t seq_len) const {
    return (2 * ranks - 1 - rank) * run(seq_len);
  }
  /// The position in the sequence of this rank's token `token`.
  [[nodiscard]] constexpr std::int64_t position(std::int64_t token, std::int64_t seq_len) const {
    const std::int64_t length = run(seq_len);
    return token < length ? first_run(seq_len) + token : second_run(seq_len) + token - length;
  }
};

/// Attention in stages, with exchanges between ranks for attention over whole sequences. gather: projection, and attend
/// after Exchange::gather_keys. heads (Ulysses, Jacobs et al. 2023): projection, core_attention of some heads of whole
/// sequences after Exchange::to_heads, output after Exchange::to_tokens. Applied after the tensor plan; with one tensor
/// rank the norms become separate stages here. Throws ConfigError for heads that cannot be divided.
[[nodiscard]] Model divide_sequences(Model model, const ContextPart& part);

/// Values of a token that an exchange of heads before `stage` moves, of this tensor rank: queries, keys and values, or
/// attention's output.
[[nodiscard]] std::int64_t exchanged_width(const Model& model, Block block, Stage stage);

}  // namespace trireme::model

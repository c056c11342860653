// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/ids.hpp"
#include "trireme/config/run_config.hpp"

/// The published pipeline schedules as tables: the actions of each pipeline rank in order.
namespace trireme::schedule {

using config::PipelineKind;

/// F: forward; B: backward; I: the gradient by the chunk's input; W: those by its weights. B is I and W in one.
enum class ActionPart : std::uint8_t { forward, backward, input, weight };

/// A part of the step of one chunk and microbatch. Chunks are numbered over all ranks, in the model's order.
struct Action {
  int chunk = 0;
  Microbatch microbatch;
  ActionPart part = ActionPart::forward;
  friend auto operator<=>(const Action&, const Action&) = default;
};
/// The action in PyTorch's notation: `0F3`, `3I1`.
[[nodiscard]] std::string to_text(const Action& action);

/// A pipeline: `chunks` on each of `ranks` ranks. Chunk c is on rank c mod ranks (loop), or with V placement (zbv,
/// dualpipev) on rank c while c < ranks and then on 2 * ranks - 1 - c, so that rank 0 has the first and the last.
struct Pipeline {
  PipelineKind kind = PipelineKind::one_f_one_b;
  int ranks = 1;
  int chunks = 1;  ///< of one rank
  int microbatches = 1;

  [[nodiscard]] int all_chunks() const { return ranks * chunks; }
  [[nodiscard]] bool v_placement() const { return kind == PipelineKind::zbv || kind == PipelineKind::dualpipev; }
  [[nodiscard]] bool splits_backward() const { return v_placement() || kind == PipelineKind::zb_h1; }
  [[nodiscard]] int rank_of(int chunk) const;
  /// The chunks of one rank, in the model's order.
  [[nodiscard]] std::vector<int> chunks_of(int rank) const;
  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

/// Chunks of a rank where the run file names none: 2 for interleaved, zbv and dualpipev, else 1.
[[nodiscard]] int default_chunks(PipelineKind kind);

/// Mistakes of a pipeline, each with valid values: microbatches and chunks against the schedule.
[[nodiscard]] std::vector<std::string> mistakes(const Pipeline& pipeline);

/// The actions of every rank in order. gpipe: all forwards, then all backwards; 1f1b: microbatches in turn, at most
/// ranks - r in flight; interleaved: chunks in turn for groups of `ranks` microbatches; zb_h1: 1F1B whose W waits until
/// more than r do; zbv and dualpipev as PyTorch and DeepSeek publish them. Throws BugError if `mistakes` has any.
using ActionTable = std::vector<std::vector<Action>>;
[[nodiscard]] ActionTable action_table(const Pipeline& pipeline);

}  // namespace trireme::schedule

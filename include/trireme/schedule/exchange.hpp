// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/mesh/groups.hpp"
#include "trireme/model/exchange.hpp"
#include "trireme/model/stage_tensors.hpp"
#include "trireme/schedule/access.hpp"

/// The exchanges between stages as data: one row a kind. Printing, parsing, lanes, needs, verification, planned bytes,
/// predicted seconds and the executor read the rows; the passes read where the exchanges of a stage are placed.
namespace trireme::schedule {

/// A set of phases.
class Phases {
 public:
  constexpr Phases(std::initializer_list<Phase> phases) {
    for (const Phase phase : phases) bits_ |= bit(phase);
  }
  [[nodiscard]] constexpr bool has(Phase phase) const { return (bits_ & bit(phase)) != 0; }
  /// The phase of a set of one; nothing for a larger one.
  [[nodiscard]] constexpr std::optional<Phase> only() const {
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::again, Phase::recompute})
      if (bits_ == bit(phase)) return phase;
    return std::nullopt;
  }

 private:
  static constexpr unsigned bit(Phase phase) { return 1U << static_cast<unsigned>(phase); }
  unsigned bits_ = 0;
};
inline constexpr Phases every_phase{Phase::forward, Phase::backward, Phase::again, Phase::recompute};

enum class Collective : std::uint8_t { all_gather, reduce_scatter, all_reduce, all_to_all };
[[nodiscard]] std::string_view to_text(Collective collective);

/// Layout of a tensor on one side of a collective.
enum class Layout : std::uint8_t {
  unchanged,
  columns,  ///< k and v: the last columns of q | k | v
  by_run,   ///< rows by context rank, as each holds its two runs of every sequence, instead of by sequence
  by_head,  ///< columns of each rank's heads, rank after rank, instead of all heads of a token
  rows      ///< rows of tokens sorted by expert; their number is known at run time
};

/// Complaints of `verify` about an exchange.
struct Complaints {
  std::string_view unexpected;                                          ///< its stage has no such exchange
  std::string_view repeated = "gathers what is there already";          ///< a second one before the stage
  std::string_view missing = "reads a sequence that was not gathered";  ///< the stage runs without it
  std::string_view wrong_phase = "does not occur in this phase";
};

struct ExchangeRow {
  Exchange kind;
  std::string_view name;         ///< first word of its line in a printed schedule
  std::string_view direction{};  ///< last word of the line, after an arrow
  std::string_view term{};       ///< name in the terms of a predicted time; an all-reduce has names for its halves
  mesh::Group group;
  Lane lane;
  Collective collective;
  model::Element element = model::Element::compute;
  Layout pack = Layout::unchanged, unpack = Layout::unchanged;  ///< before and after the collective
  Phases phases;                                                ///< in which it occurs; printed if there are several
  Phases follows{};  ///< phases in which it follows its stage; in the others it precedes it
  Complaints complaints{};
  std::optional<Exchange> preceded_by{};  ///< in forward
  bool repeated_for_weights = false;      ///< Phase::again precedes the weights' gradients, not the input's
};

[[nodiscard]] const ExchangeRow& row_of(Exchange kind);
/// All rows, in the order of the enumeration.
[[nodiscard]] std::span<const ExchangeRow> exchange_rows();

/// A place before or after an op that runs a stage. before_weights: before a Backward of BackwardPart::weight.
enum class Place : std::uint8_t {
  before_forward,
  after_forward,
  before_recompute,
  after_recompute,
  before_backward,
  after_backward,
  before_weights
};

struct PlacedExchange {
  Exchange kind;
  Phase phase;
  friend bool operator==(const PlacedExchange&, const PlacedExchange&) = default;
};
/// The exchanges of a stage at a place, in the order in which they run.
[[nodiscard]] std::vector<PlacedExchange> exchanges_at(const model::Stage& stage, Place place);

}  // namespace trireme::schedule

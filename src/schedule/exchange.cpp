// SPDX-License-Identifier: Apache-2.0
// The table of exchanges, and where those of a stage are placed.
#include "trireme/schedule/exchange.hpp"

#include <algorithm>
#include <array>

#include "trireme/base/error.hpp"

namespace trireme::schedule {
namespace {

constexpr Phases in_forward{Phase::forward}, in_backward{Phase::backward};
constexpr Phases without_again{Phase::forward, Phase::backward, Phase::recompute};

constexpr Complaints complaints_of_heads{.unexpected = "exchanges what its stage does not read",
                                         .repeated = "exchanges what is there already",
                                         .wrong_phase = "exchanges what no stage computes again"};

// Tensor parallelism with sequence parallelism: Shoeybi et al. 2019, Korthikanti et al. 2022. Context parallelism by
// gathered keys: Dubey et al. 2024; by exchanged heads (Ulysses): Jacobs et al. 2023.
constexpr std::array<ExchangeRow, model::exchanges> exchange_table{{
    // The norm's output before a forward, and again before its weights' gradients; before a backward the gradient of
    // the residual stream.
    {.kind = Exchange::gather_sequence,
     .name = "gather_sequence",
     .term = "gather of the sequence",
     .group = mesh::Group::tensor,
     .lane = Lane::tensor,
     .collective = Collective::all_gather,
     .phases = every_phase,
     .complaints = {.unexpected = "gathers a sequence that its stage does not read"},
     .repeated_for_weights = true},
    // Partial results of a stage, each rank keeping its part of the sequence; backward: the gradient of its input.
    {.kind = Exchange::scatter_sequence,
     .name = "scatter_sequence",
     .term = "scatter of the sequence",
     .group = mesh::Group::tensor,
     .lane = Lane::tensor,
     .collective = Collective::reduce_scatter,
     .phases = without_again,
     .follows = every_phase},
    // The same without sequence parallelism: all ranks keep the whole sum.
    {.kind = Exchange::all_reduce_activation,
     .name = "all_reduce_activation",
     .group = mesh::Group::tensor,
     .lane = Lane::tensor,
     .collective = Collective::all_reduce,
     .phases = without_again,
     .follows = every_phase},
    // Two values a token, for queries and keys: before a qk_norm the sums of squares of this rank's heads; in backward
    // the products of the gradients with the normed values, which the qk_norm then subtracts.
    {.kind = Exchange::all_reduce_statistics,
     .name = "all_reduce_statistics",
     .group = mesh::Group::tensor,
     .lane = Lane::tensor,
     .collective = Collective::all_reduce,
     .element = model::Element::fp32,
     .phases = without_again,
     .follows = in_backward,
     .complaints = {.unexpected = "sums statistics that its stage does not read",
                    .repeated = "sums what is summed already",
                    .wrong_phase = "sums statistics that no stage computes again"}},
    // Maximum, sum of exponentials and the target's logit of every token, of each rank's part of the vocabulary.
    {.kind = Exchange::gather_vocabulary,
     .name = "gather_vocabulary",
     .term = "gather of the loss",
     .group = mesh::Group::tensor,
     .lane = Lane::tensor,
     .collective = Collective::all_gather,
     .element = model::Element::fp32,
     .phases = in_forward,
     .follows = every_phase},
    // Keys and values of whole sequences: those that the previous stage computed, or with Phase::again those saved.
    {.kind = Exchange::gather_keys,
     .name = "gather_keys",
     .term = "gather of keys and values",
     .group = mesh::Group::context,
     .lane = Lane::context,
     .collective = Collective::all_gather,
     .pack = Layout::columns,
     .unpack = Layout::by_run,
     .phases = {Phase::forward, Phase::again, Phase::recompute},
     .complaints = {.unexpected = "gathers keys that its stage does not read",
                    .wrong_phase = "gathers keys, which have no backward of their own"}},
    // The sum of their gradients, each rank keeping those of its tokens.
    {.kind = Exchange::scatter_keys,
     .name = "scatter_keys",
     .term = "scatter of their gradients",
     .group = mesh::Group::context,
     .lane = Lane::context,
     .collective = Collective::reduce_scatter,
     .pack = Layout::by_run,
     .unpack = Layout::columns,
     .phases = in_backward,
     .follows = every_phase},
    // All heads of this rank's tokens for some heads of whole sequences: queries, keys and values before attention, the
    // gradient of its output in backward.
    {.kind = Exchange::to_heads,
     .name = "exchange_heads",
     .direction = "heads",
     .term = "exchange of heads",
     .group = mesh::Group::context,
     .lane = Lane::context,
     .collective = Collective::all_to_all,
     .pack = Layout::by_head,
     .unpack = Layout::by_run,
     .phases = without_again,
     .follows = in_backward,
     .complaints = complaints_of_heads},
    // The inverse.
    {.kind = Exchange::to_tokens,
     .name = "exchange_heads",
     .direction = "tokens",
     .term = "exchange of heads",
     .group = mesh::Group::context,
     .lane = Lane::context,
     .collective = Collective::all_to_all,
     .pack = Layout::by_run,
     .unpack = Layout::by_head,
     .phases = without_again,
     .follows = in_backward,
     .complaints = complaints_of_heads},
    // Choices of each expert in each sequence, for the backward of a router.
    {.kind = Exchange::sum_loads,
     .name = "sum_loads",
     .group = mesh::Group::sequence,
     .lane = Lane::expert,
     .collective = Collective::all_reduce,
     .element = model::Element::fp32,
     .phases = in_backward,
     .complaints = {.unexpected = "sums loads that its stage does not read",
                    .repeated = "sums what is summed already",
                    .missing = "reads loads that were not summed"}},
    // Number of rows that each expert of a rank receives in this microbatch.
    {.kind = Exchange::exchange_counts,
     .name = "exchange_counts",
     .term = "counts of rows",
     .group = mesh::Group::expert,
     .lane = Lane::expert,
     .collective = Collective::all_to_all,
     .element = model::Element::int32,
     .phases = in_forward,
     .complaints = {.unexpected = "counts rows that its stage does not get",
                    .repeated = "counts what is counted already",
                    .missing = "dispatches rows that were not counted"}},
    // Rows and their weights to the ranks of their experts; backward: their gradients back.
    {.kind = Exchange::dispatch,
     .name = "dispatch",
     .term = "rows to experts",
     .group = mesh::Group::expert,
     .lane = Lane::expert,
     .collective = Collective::all_to_all,
     .pack = Layout::rows,
     .unpack = Layout::rows,
     .phases = without_again,
     .follows = in_backward,
     .complaints = {.unexpected = "dispatches rows that its stage does not read",
                    .wrong_phase = "dispatches rows that no forward waits for"},
     .preceded_by = Exchange::exchange_counts},
    // The experts' outputs back to the ranks of their tokens; backward: the gradients to the experts.
    {.kind = Exchange::combine,
     .name = "combine",
     .term = "rows from experts",
     .group = mesh::Group::expert,
     .lane = Lane::expert,
     .collective = Collective::all_to_all,
     .pack = Layout::rows,
     .unpack = Layout::rows,
     .phases = {Phase::forward, Phase::backward},
     .follows = in_forward,
     .complaints = {.unexpected = "combines what its stage does not leave",
                    .wrong_phase = "combines what nothing reads"}},
}};

constexpr bool exchanges_in_order() {
  for (std::size_t i = 0; i < exchange_table.size(); ++i)
    if (static_cast<std::size_t>(exchange_table[i].kind) != i) return false;
  return true;
}
static_assert(exchanges_in_order(), "row_of reads the table by the value of their kind");

/// An exchange on one side of a stage, in forward and in backward.
struct Boundary {
  Exchange exchange;
  std::optional<Exchange> forward, backward;
  bool recomputed = true;  ///< the recompute of the stage has that of forward, too
};
constexpr std::array<Boundary, 7> exchanges_on_enter{
    {{Exchange::gather_sequence, Exchange::gather_sequence, Exchange::scatter_sequence},
     {Exchange::all_reduce_activation, std::nullopt, Exchange::all_reduce_activation},
     {Exchange::all_reduce_statistics, Exchange::all_reduce_statistics, Exchange::all_reduce_statistics},
     {Exchange::gather_keys, Exchange::gather_keys, Exchange::scatter_keys},
     {Exchange::to_heads, Exchange::to_heads, Exchange::to_tokens},
     {Exchange::to_tokens, Exchange::to_tokens, Exchange::to_heads},
     {Exchange::dispatch, Exchange::dispatch, Exchange::dispatch}}};
constexpr std::array<Boundary, 4> exchanges_on_leave{
    {{Exchange::scatter_sequence, Exchange::scatter_sequence, Exchange::gather_sequence},
     {Exchange::all_reduce_activation, Exchange::all_reduce_activation, std::nullopt},
     {Exchange::gather_vocabulary, Exchange::gather_vocabulary, std::nullopt, false},
     {Exchange::combine, Exchange::combine, Exchange::combine, false}}};  // nothing reads a recomputed expert's output

/// The row of a side's exchange; a row without exchanges where the stage has none.
template <std::size_t count>
Boundary boundary_at(const std::array<Boundary, count>& side, std::optional<Exchange> exchange) {
  if (!exchange) return {};
  const auto found = std::find_if(side.begin(), side.end(), [&](const Boundary& b) { return b.exchange == *exchange; });
  invariant(found != side.end(), "an exchange is on a side of a stage that has no row for it");
  return *found;
}

}  // namespace

std::string_view to_text(Collective collective) {
  switch (collective) {
    case Collective::all_gather: return "all_gather";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_reduce: return "all_reduce";
    case Collective::all_to_all: return "all_to_all";
  }
  return "?";
}

const ExchangeRow& row_of(Exchange kind) { return exchange_table.at(static_cast<std::size_t>(kind)); }
std::span<const ExchangeRow> exchange_rows() { return exchange_table; }

std::vector<PlacedExchange> exchanges_at(const model::Stage& stage, Place place) {
  std::vector<PlacedExchange> out;
  const auto add = [&](std::optional<Exchange> kind, Phase phase) {
    if (kind) out.push_back({*kind, phase});
  };
  const Boundary enter = boundary_at(exchanges_on_enter, stage.enter),
                 leave = boundary_at(exchanges_on_leave, stage.leave);
  const auto repeat = [&](bool for_weights) {
    if (!enter.forward) return;
    const ExchangeRow& row = row_of(*enter.forward);
    if (row.phases.has(Phase::again) && row.repeated_for_weights == for_weights) add(enter.forward, Phase::again);
  };
  switch (place) {
    case Place::before_forward:
      if (enter.forward) add(row_of(*enter.forward).preceded_by, Phase::forward);
      add(enter.forward, Phase::forward);
      break;
    case Place::after_forward: add(leave.forward, Phase::forward); break;
    case Place::before_recompute: add(enter.forward, Phase::recompute); break;
    case Place::after_recompute:
      if (leave.recomputed) add(leave.forward, Phase::recompute);
      break;
    case Place::before_backward:
      add(leave.backward, Phase::backward);
      repeat(/*for_weights=*/false);
      if (stage.sums_loads) add(Exchange::sum_loads, Phase::backward);
      break;
    case Place::after_backward: add(enter.backward, Phase::backward); break;
    case Place::before_weights: repeat(/*for_weights=*/true); break;
  }
  return out;
}

}  // namespace trireme::schedule

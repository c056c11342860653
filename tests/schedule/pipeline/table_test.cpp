// SPDX-License-Identifier: Apache-2.0
// The tables of the pipeline schedules: against what others publish, and against the formulas of bubble and memory.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "in_flight.hpp"
#include "pipelines.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/names.hpp"

namespace trireme::schedule {
namespace {

using testing::count_in_flight;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::most_in_flight;
using testing::pipeline;
using testing::pipelines;

std::string text(const std::vector<Action>& actions) {
  std::vector<std::string> words;
  for (const Action& action : actions) words.push_back(to_text(action));
  return fmt::format("{}", fmt::join(words, " "));
}

const std::vector<int> some_ranks{1, 2, 3, 4, 5, 8}, some_microbatches{1, 2, 3, 4, 7, 8, 10, 16, 24};

struct Published {
  PipelineKind kind;
  int ranks, microbatches, rank;
  std::string table;
};

// Printed by torch/distributed/pipelining/schedules.py (its OVERLAP_F_B as F, then B); 1F1B: the formula.
TEST(ActionTable, IsWhatPyTorchPrints) {
  const std::vector<Published> all{
      {PipelineKind::gpipe, 4, 3, 1, "1F0 1F1 1F2 1B0 1B1 1B2"},
      {PipelineKind::one_f_one_b, 4, 5, 0, "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0B2 0B3 0B4"},
      {PipelineKind::one_f_one_b, 4, 5, 2, "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2B4"},
      {PipelineKind::interleaved, 4, 8, 0,
       "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 0B2 0B3 4B4 4B5 4B6 "
       "4B7 0B4 0B5 0B6 0B7"},
      {PipelineKind::interleaved, 4, 8, 1,
       "1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 1F4 5B0 1F5 5B1 1F6 5B2 1F7 5B3 5F4 1B0 5F5 1B1 5F6 1B2 5F7 1B3 5B4 5B5 5B6 "
       "5B7 1B4 1B5 1B6 1B7"},
      {PipelineKind::interleaved, 4, 8, 3,
       "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 7F4 7B4 7F5 7B5 7F6 7B6 7F7 "
       "7B7 3B4 3B5 3B6 3B7"},
      {PipelineKind::zb_h1, 4, 5, 0, "0F0 0F1 0F2 0F3 0I0 0W0 0F4 0I1 0W1 0I2 0W2 0I3 0W3 0I4 0W4"},
      {PipelineKind::zb_h1, 4, 5, 2, "2F0 2F1 2I0 2F2 2I1 2F3 2I2 2W0 2F4 2I3 2W1 2I4 2W2 2W3 2W4"},
      {PipelineKind::zb_h1, 4, 5, 3, "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3W2 3W3 3W4"},
      {PipelineKind::zbv, 3, 4, 0,
       "0F0 0F1 0F2 0F3 5F0 5I0 5W0 5F1 5I1 5W1 5F2 5I2 5W2 0I0 0W0 5F3 5I3 5W3 0I1 0W1 0I2 0W2 0I3 0W3"},
      {PipelineKind::zbv, 3, 4, 1,
       "1F0 1F1 1F2 4F0 1F3 4F1 4I0 4W0 4F2 4I1 4W1 1I0 1W0 4F3 4I2 4W2 1I1 1W1 4I3 4W3 1I2 1I3 1W2 1W3"},
      {PipelineKind::zbv, 3, 4, 2,
       "2F0 3F0 2F1 3F1 2F2 3F2 3I0 3W0 2F3 2I0 2W0 3F3 3I1 3W1 2I1 2W1 3I2 3W2 2I2 3I3 2I3 2W2 3W3 2W3"},
      {PipelineKind::zbv, 4, 8, 0,
       "0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 7I3 7W3 0F7 0I0 0W0 7F4 7I4 7W4 0I1 0W1 "
       "7F5 7I5 7W5 0I2 0W2 7F6 7I6 7W6 0I3 0W3 7F7 7I7 7W7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7"},
      {PipelineKind::zbv, 4, 8, 1,
       "1F0 1F1 1F2 1F3 1F4 6F0 1F5 6F1 6I0 6W0 6F2 6I1 6W1 6F3 6I2 6W2 1F6 1I0 1W0 6F4 6I3 6W3 1F7 1I1 1W1 6F5 6I4 "
       "6W4 1I2 1W2 6F6 6I5 6W5 1I3 1W3 6F7 6I6 6W6 1I4 6I7 1I5 1W4 1I6 1W5 1I7 1W6 6W7 1W7"},
      {PipelineKind::zbv, 4, 8, 2,
       "2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5I0 5W0 5F3 5I1 5W1 2F5 2I0 2W0 5F4 5I2 5W2 2F6 2I1 2W1 5F5 5I3 5W3 2F7 2I2 "
       "2W2 5F6 5I4 5W4 2I3 2W3 5F7 5I5 5W5 2I4 5I6 2I5 5I7 2I6 2W4 2I7 2W5 5W6 5W7 2W6 2W7"},
      {PipelineKind::zbv, 4, 8, 3,
       "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 4W0 3F4 3I0 3W0 4F4 4I1 4W1 3F5 3I1 3W1 4F5 4I2 4W2 3F6 3I2 3W2 4F6 4I3 "
       "4W3 3F7 3I3 3W3 4F7 4I4 4W4 3I4 4I5 3I5 4I6 3I6 4I7 3I7 3W4 4W5 4W6 4W7 3W5 3W6 3W7"},
      {PipelineKind::dualpipev, 4, 9, 0,
       "0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 0F7 7B3 7F4 0B0 0F8 7B4 7F5 0B1 7B5 7F6 "
       "0B2 7B6 7F7 0B3 7B7 7F8 0B4 7B8 0I5 0W5 0I6 0W6 0I7 0W7 0I8 0W8"},
      {PipelineKind::dualpipev, 4, 9, 1,
       "1F0 1F1 1F2 1F3 1F4 6F0 1F5 6F1 6I0 6W0 6F2 6I1 6W1 6F3 1F6 6B2 6F4 1B0 1F7 6B3 6F5 1B1 1F8 6B4 6F6 1B2 6B5 "
       "6F7 1B3 6B6 6F8 1B4 6B7 1B5 6I8 1I6 6W8 1I7 1W6 1I8 1W7 1W8"},
      {PipelineKind::dualpipev, 4, 9, 2,
       "2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5I0 5W0 5F3 2F5 5B1 5F4 2B0 2F6 5B2 5F5 2B1 2F7 5B3 5F6 2B2 2F8 5B4 5F7 2B3 "
       "5B5 5F8 2B4 5B6 2B5 5B7 2I6 5I8 2I7 2W6 2I8 5W8 2W7 2W8"},
      {PipelineKind::dualpipev, 4, 9, 3,
       "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 3F4 4B0 4F4 3B0 3F5 4B1 4F5 3B1 3F6 4B2 4F6 3B2 3F7 4B3 4F7 3B3 3F8 4B4 4F8 "
       "3B4 4B5 3B5 4B6 3B6 4I7 3I7 4I8 3I8 4W7 3W7 4W8 3W8"},
  };
  for (const Published& of : all)
    EXPECT_EQ(text(action_table(pipeline(of.kind, of.ranks, of.microbatches))[static_cast<std::size_t>(of.rank)]),
              of.table)
        << config::to_text(of.kind) << ", rank " << of.rank << " of " << of.ranks;
}

TEST(ActionTable, HasEveryPartOfEveryChunkAndMicrobatchOnceOnItsRank) {
  for (const Pipeline& p : pipelines(some_ranks, some_microbatches)) {
    std::set<Action> seen;
    const ActionTable table = action_table(p);
    for (int rank = 0; rank < p.ranks; ++rank)
      for (const Action& action : table[static_cast<std::size_t>(rank)]) {
        EXPECT_EQ(p.rank_of(action.chunk), rank);
        if (action.part == ActionPart::backward) {
          EXPECT_TRUE(seen.insert({action.chunk, action.microbatch, ActionPart::input}).second);
          EXPECT_TRUE(seen.insert({action.chunk, action.microbatch, ActionPart::weight}).second);
        } else {
          EXPECT_TRUE(seen.insert(action).second) << to_text(action);
        }
      }
    EXPECT_EQ(static_cast<int>(seen.size()), 3 * p.all_chunks() * p.microbatches) << config::to_text(p.kind);
  }
}

TEST(ActionTable, HasExactlyTheBubbleOfTheFormula) {
  for (const Pipeline& p : pipelines(some_ranks, some_microbatches)) {
    const auto formula = unit_bubble(p);
    if (!formula) continue;
    const TableTimes times = run_table(p, action_table(p), ActionCosts(static_cast<std::size_t>(p.all_chunks())));
    const int each = (p.splits_backward() ? 1 : 3) * (p.ranks - 1);
    for (int rank = 0; rank < p.ranks; ++rank)
      EXPECT_EQ(times.idle(rank), each) << config::to_text(p.kind) << " V " << p.chunks << ", rank " << rank << " of "
                                        << p.ranks << ", " << p.microbatches << " microbatches";
    EXPECT_DOUBLE_EQ(times.bubble(), *formula);
  }
}

TEST(ActionTable, HoldsActivationsByTheFormula) {
  for (const Pipeline& p : pipelines(some_ranks, some_microbatches)) {
    const ActionTable table = action_table(p);
    for (int rank = 0; rank < p.ranks; ++rank) {
      const int most = count_in_flight(table[static_cast<std::size_t>(rank)]);
      EXPECT_LE(most, most_in_flight(p, rank)) << config::to_text(p.kind) << ", rank " << rank << " of " << p.ranks
                                               << ", " << p.microbatches << " microbatches";
      if (p.microbatches >= 2 * p.ranks && p.kind != PipelineKind::dualpipev) {
        EXPECT_EQ(most, most_in_flight(p, rank)) << config::to_text(p.kind) << ", rank " << rank << " of " << p.ranks;
      }
    }
  }
}

TEST(ActionTable, NumbersOfTheDesign) {
  const std::map<PipelineKind, double> at_4_of_8{
      {PipelineKind::gpipe, 9.0 / 33}, {PipelineKind::one_f_one_b, 9.0 / 33}, {PipelineKind::interleaved, 9.0 / 57},
      {PipelineKind::zb_h1, 3.0 / 27}, {PipelineKind::zbv, 3.0 / 51},         {PipelineKind::dualpipev, 3.0 / 51}};
  for (const auto& [kind, bubble] : at_4_of_8)
    EXPECT_DOUBLE_EQ(run_table(pipeline(kind, 4, 8), action_table(pipeline(kind, 4, 8)),
                               ActionCosts(4U * static_cast<unsigned>(default_chunks(kind))))
                         .bubble(),
                     bubble)
        << config::to_text(kind);
}

TEST(ActionTable, IsRefusedWithWhatWorks) {
  EXPECT_THAT(mistakes(pipeline(PipelineKind::interleaved, 4, 6)).at(0), HasSubstr("4 or 8 work"));
  EXPECT_THAT(mistakes(pipeline(PipelineKind::interleaved, 4, 3)).at(0), HasSubstr("; 4 work"));
  EXPECT_THAT(mistakes(pipeline(PipelineKind::interleaved, 4, 8, 1)).at(0), HasSubstr("at least 2 chunks"));
  EXPECT_THAT(mistakes(pipeline(PipelineKind::dualpipev, 4, 7)).at(0), HasSubstr("= 8 microbatches"));
  EXPECT_THAT(mistakes(pipeline(PipelineKind::zbv, 4, 8, 3)).at(0), HasSubstr("2 chunks on every rank, not 3"));
  EXPECT_THROW((void)action_table(pipeline(PipelineKind::dualpipev, 4, 7)), BugError);
}

TEST(RunTable, NamesTheActionsOfATableThatHangs) {
  const Pipeline p = pipeline(PipelineKind::one_f_one_b, 2, 2);
  ActionTable table = action_table(p);
  std::swap(table[0][0], table[0][2]);  // a backward first
  try {
    (void)run_table(p, table, ActionCosts(2));
    FAIL() << "it ends";
  } catch (const BugError& error) {
    EXPECT_THAT(error.what(), HasSubstr("pipeline rank 0 waits with 0B0; pipeline rank 1 waits with 1F0"));
  }
}

TEST(PipelineOrder, IsOneOrderOfWhichEachListIsAProjection) {
  for (const Pipeline& p : pipelines({2, 3, 4, 8}, {4, 8, 16})) {
    const auto orders = pipeline_order(p, ActionCosts(static_cast<std::size_t>(p.all_chunks())));
    const ActionTable table = action_table(p);
    std::map<Transfer, int> ends;
    for (int rank = 0; rank < p.ranks; ++rank) {
      std::vector<Action> actions;
      for (const auto& entry : orders[static_cast<std::size_t>(rank)]) {
        if (const auto* action = std::get_if<Action>(&entry)) actions.push_back(*action);
        if (const auto* transfer = std::get_if<Transfer>(&entry)) {
          ++ends[*transfer];
          EXPECT_TRUE(transfer->from == rank || transfer->to == rank);
        }
      }
      EXPECT_EQ(text(actions), text(table[static_cast<std::size_t>(rank)]));
    }
    const int turns = p.v_placement() ? 1 : 0;
    EXPECT_EQ(static_cast<int>(ends.size()), 2 * p.microbatches * (p.all_chunks() - 1 - turns));
    for (const auto& [transfer, count] : ends) EXPECT_EQ(count, 2) << transfer.edge.value;
  }
}

}  // namespace
}  // namespace trireme::schedule

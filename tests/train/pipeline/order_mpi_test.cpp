// SPDX-License-Identifier: Apache-2.0
//
// Pipeline ranks follow the table of actions, simulated with the FLOPs of their chunks, over a link with latency.
// Without timing: an action cannot begin before all actions of earlier rows of the grid have ended, nor end before all
// actions of its row have begun, on every rank. In an order other than the grid's, or with an idle rank that has work
// in the grid, a wait times out.
//
// ranks: 2 3 4
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "pipeline_runs.hpp"
#include "support/test_transports.hpp"
#include "trireme/config/names.hpp"

namespace trireme::train::pipeline_runs {
namespace {

using schedule::ActionPart;

/// Numbers of actions that every rank has begun and ended, shared by all ranks.
class Progress {
 public:
  explicit Progress(const mpi::Communicator& world) : ranks_(world.size()) {
    std::atomic<std::int64_t>* mine = nullptr;
    const auto bytes = static_cast<MPI_Aint>(world.rank() == 0 ? 2 * ranks_ * sizeof(*mine) : 0);
    mpi::check(MPI_Win_allocate_shared(bytes, sizeof(*mine), MPI_INFO_NULL, world.handle(), &mine, &window_),
               "a window in a test");
    MPI_Aint size = 0;
    int unit = 0;
    mpi::check(MPI_Win_shared_query(window_, 0, &size, &unit, static_cast<void*>(&counts_)), "a window in a test");
    if (world.rank() == 0)
      for (int i = 0; i < 2 * ranks_; ++i) new (counts_ + i) std::atomic<std::int64_t>(0);
    MPI_Barrier(world.handle());
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { MPI_Win_free(&window_); }

  [[nodiscard]] std::atomic<std::int64_t>& begun(int rank) { return counts_[rank]; }
  [[nodiscard]] std::atomic<std::int64_t>& ended(int rank) { return counts_[ranks_ + rank]; }
  /// False when that many have not been counted after a long while.
  [[nodiscard]] static bool await(const std::atomic<std::int64_t>& count, std::int64_t wanted) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (count.load() < wanted) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  }

 private:
  int ranks_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::atomic<std::int64_t>* counts_ = nullptr;
};

/// Part of an op: I includes everything except weight gradients, B everything.
struct Part {
  Block block;
  Microbatch microbatch;
  ActionPart part;
};
std::optional<Part> part_of(const schedule::Op& op) {
  using Found = std::optional<Part>;
  return std::visit(
      [](const auto& verb) -> Found {
        using Verb = std::decay_t<decltype(verb)>;
        if constexpr (std::is_same_v<Verb, schedule::Forward>) {
          return Part{verb.block, verb.microbatch, ActionPart::forward};
        } else if constexpr (std::is_same_v<Verb, schedule::Backward>) {
          const bool weight = verb.part == schedule::BackwardPart::weight;
          return Part{verb.block, verb.microbatch, weight ? ActionPart::weight : ActionPart::input};
        } else {
          return std::nullopt;
        }
      },
      op);
}

/// By op of a rank's list its action's place in the rank's row of the table; -1 for ops that compute nothing.
std::vector<int> actions_of(const schedule::Schedule& list, const std::vector<model::HeldChunk>& held,
                            const std::vector<schedule::Action>& actions) {
  const auto chunk_of = [&](Block block) {
    for (const model::HeldChunk& chunk : held)
      if (chunk.first <= block && block < chunk.last) return chunk.chunk;
    return -1;
  };
  std::vector<int> places;
  int now = -1;
  const auto fits = [&](int place, const Part& part) {
    if (place < 0 || place >= static_cast<int>(actions.size())) return false;
    const schedule::Action& action = actions[static_cast<std::size_t>(place)];
    const bool same_part =
        action.part == part.part || (action.part == ActionPart::backward && part.part != ActionPart::forward);
    return action.chunk == chunk_of(part.block) && action.microbatch == part.microbatch && same_part;
  };
  for (const schedule::Op& op : list.ops) {
    const std::optional<Part> part = part_of(op);
    if (part && !fits(now, *part)) {
      ++now;
      EXPECT_TRUE(fits(now, *part)) << "the list has another order of actions than the table";
    }
    places.push_back(part ? now : -1);
  }
  EXPECT_EQ(now + 1, static_cast<int>(actions.size()));
  return places;
}

/// Keeps this rank's actions at their place among those of all ranks.
class Grid {
 public:
  Grid(const schedule::TableTimes& times, int rank, Progress& progress)
      : times_(times), rank_(rank), progress_(progress) {}

  void follow(const schedule::Schedule& list, std::vector<int> places) {
    list_ = &list;
    places_ = std::move(places);
  }
  void on_op(int op, std::int64_t step) {
    if (list_ == nullptr || schedule::lane_of(list_->ops[static_cast<std::size_t>(op)]) != schedule::Lane::compute)
      return;
    const int place = places_[static_cast<std::size_t>(op)];
    if (place == running_ || (place < 0 && running_ < 0)) return;
    if (running_ >= 0) leave(std::exchange(running_, -1), step_);
    if (place >= 0) enter(running_ = place, step_ = step);
  }
  [[nodiscard]] const std::string& in_vain() const { return in_vain_; }

 private:
  using Times = std::vector<schedule::ActionTime>;
  void meet(const char* what, int place, std::int64_t step, bool begun, auto counts) {
    const schedule::ActionTime& mine = times_.ranks[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(place)];
    for (int other = 0; other < static_cast<int>(times_.ranks.size()); ++other) {
      if (other == rank_ || !in_vain_.empty()) continue;
      const Times& theirs = times_.ranks[static_cast<std::size_t>(other)];
      const auto wanted = std::ranges::count_if(theirs, [&](const schedule::ActionTime& t) { return counts(t, mine); });
      const auto before = step * static_cast<std::int64_t>(theirs.size());
      if (!Progress::await(begun ? progress_.begun(other) : progress_.ended(other), before + wanted))
        in_vain_ = std::string(what) + " of " + to_text(mine.action) + " in step " + std::to_string(step) +
                   ": pipeline rank " + std::to_string(other) + " keeps " +
                   to_text(theirs[static_cast<std::size_t>(std::max<std::int64_t>(0, wanted - 1))].action);
    }
  }
  void enter(int place, std::int64_t step) {
    meet("the begin", place, step, false,
         [](const auto& theirs, const auto& mine) { return theirs.end <= mine.begin; });
    ++progress_.begun(rank_);
  }
  void leave(int place, std::int64_t step) {
    meet("the end", place, step, true, [](const auto& theirs, const auto& mine) { return theirs.begin < mine.end; });
    ++progress_.ended(rank_);
  }

  const schedule::TableTimes& times_;
  int rank_;
  Progress& progress_;
  const schedule::Schedule* list_ = nullptr;
  std::vector<int> places_;
  int running_ = -1;
  std::int64_t step_ = 0;
  std::string in_vain_;
};

TEST(PipelineOrder, IsExactlyThatOfTheActionGridOverASlowLink) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  using enum config::PipelineKind;
  for (const config::PipelineKind kind : {gpipe, one_f_one_b, interleaved, zb_h1, zbv, dualpipev}) {
    SCOPED_TRACE(std::string(config::to_text(kind)));
    // In a V a rank sends both ways on one lane: of four one waits until its peer takes a stream.
    if (world.size() > 3 && (kind == zbv || kind == dualpipev)) continue;
    config::RunConfig config = problem_run(Problem::deep, files);
    config.train.steps = 2;
    config.mesh.pipeline = world.size();
    config.pipeline.schedule = kind;
    config.batch.global = 4 * world.size();
    config.batch.micro = 2;
    const schedule::Pipeline pipeline = planner::pipeline_of(config, 2 * world.size());
    const schedule::ActionTable table = schedule::action_table(pipeline);
    const planner::PipelinePlan plan = planner::build_pipeline_plan(config, config::resolve(config, world.size()));
    const schedule::TableTimes times = schedule::run_table(pipeline, table, plan.costs);
    Progress progress(world);
    Grid grid(times, world.rank(), progress);
    JobOptions options{.lane_threads = true, .record_timeline = true};
    options.wrap_transport = [](std::unique_ptr<comm::Transport> transport) {
      return comm::paced(std::move(transport), {.bytes_per_second = 1e9, .latency_seconds = 5e-4});
    };
    options.on_op = [&](int op, std::int64_t step) { grid.on_op(op, step); };
    const auto rank = static_cast<std::size_t>(world.rank());
    const std::vector<int> places = actions_of(plan.steps[rank], plan.parts[rank].chunks, table[rank]);
    grid.follow(plan.steps[rank], places);
    std::vector<timeline::Span> spans;
    const test::Curve met = test::train_job(config, world, options, [&](Job& job, int step) {
                              EXPECT_EQ(job.schedule(), plan.steps[rank]);
                              if (step + 1 == config.train.steps) spans = job.executor().timeline().take();
                            }).curve;
    EXPECT_EQ(grid.in_vain(), "");
    EXPECT_EQ(met, test::train_job(config, world).curve) << "the same bits as without meetings";
    // The timeline has every rank's actions in that order, too.
    std::vector<std::pair<timeline::Clock::time_point, int>> begins;
    for (const timeline::Span& span : spans)
      if (span.step == 1 && places[static_cast<std::size_t>(span.op)] >= 0)
        begins.emplace_back(span.begin, places[static_cast<std::size_t>(span.op)]);
    std::ranges::sort(begins);
    EXPECT_TRUE(std::ranges::is_sorted(begins, {}, [](const auto& of) { return of.second; }));
    EXPECT_GE(begins.size(), table[rank].size());
  }
}

}  // namespace
}  // namespace trireme::train::pipeline_runs

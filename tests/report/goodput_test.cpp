// SPDX-License-Identifier: Apache-2.0
#include "trireme/report/goodput.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "support/temporary_directory.hpp"
#include "trireme/base/io/file.hpp"

namespace trireme::report::goodput_test {
namespace {

using Kind = GoodputEvent::Kind;
using testing::ElementsAre;
using testing::Pair;

Goodput of(const std::vector<GoodputEvent>& events) {
  GoodputClock clock;
  for (const GoodputEvent& event : events) clock.add(event);
  return clock.parts();
}

/// With the time between jobs.
double wall(const Goodput& goodput) { return goodput.total() + goodput.between_jobs; }

/// A run of `steps` steps, saved every `every`, in attempts with random durations and random failures. Every second of
/// it is counted here where it is spent, and steps in a set.
struct Simulated {
  std::mt19937_64 random;
  std::vector<GoodputEvent> events;
  std::map<std::string, double> seconds;
  double now = 1e9, step_time = 0;  ///< of the last row
  std::int64_t step = 0, last_row = 0, saved = 0, executed = 0, failures = 0, attempts = 0;
  std::set<std::int64_t> done;
  std::map<std::int64_t, double> row_times;

  explicit Simulated(std::uint64_t seed) : random(seed) {}

  double draw(double most) { return std::uniform_real_distribution<double>(0, most)(random); }
  bool chance(double share) { return draw(1) < share; }
  void spend(const std::string& part, double duration) {
    seconds[part] += duration;
    now += duration;
  }
  std::int64_t last() const { return done.empty() ? 0 : *done.rbegin(); }

  /// Returns whether all steps are done.
  bool attempt(std::int64_t steps, int every, bool supervised, int life) {
    const double began = now;
    const GoodputEvent start{
        .kind = Kind::start, .step = last_row, .began = began, .step_time = step_time, .life = life};
    spend("start", draw(3));
    if (supervised && chance(0.1)) return fail(supervised, began, "start");  // before its record begins
    const double loads = now;
    spend("load", draw(2));
    events.push_back(start);
    events.back().time = loads;
    step = saved;
    events.push_back({.kind = Kind::load, .time = now, .step = step});
    if (chance(0.9)) {  // else a kill comes before metrics.jsonl is cut back
      last_row = step;
      step_time = row_times[step];
    }
    ++attempts;
    const std::int64_t until = last();
    while (step < steps) {
      const bool again = done.contains(step + 1);
      if (chance(0.02)) {  // within a step
        spend(supervised ? "detection" : "between", draw(1));
        return fail(supervised, began, "detection");
      }
      spend(again ? "repeated" : "new", draw(1));
      ++executed;
      done.insert(++step);
      step_time = row_times[step] = now;
      last_row = step;
      if (step == until) events.push_back({.kind = Kind::caught_up, .time = now, .step = step});
      if (step % every == 0) {
        const double stall = draw(0.5);
        spend("saves", stall);
        events.push_back({.kind = Kind::save, .time = now, .step = step, .seconds = stall});
        saved = step;
      }
      if (step % 7 == 0) {
        const double evaluates = draw(0.5);
        spend("evaluations", evaluates);
        events.push_back({.kind = Kind::evaluation, .time = now, .step = step, .seconds = evaluates});
        step_time = row_times[step] = now;
      }
    }
    const double rest = draw(1);
    spend("other", rest);
    events.push_back({.kind = Kind::end, .time = now, .step = step, .seconds = rest});
    return true;
  }

  bool fail(bool supervised, double began, const char* part) {
    ++failures;
    if (!supervised) return false;
    spend(part, draw(5));
    events.push_back({.kind = Kind::failure,
                      .time = now,
                      .step = last_row,
                      .began = began,
                      .step_time = step_time > began ? step_time : 0});
    spend("start", draw(2));
    events.push_back({.kind = Kind::restart, .time = now});
    return false;
  }
};

TEST(Goodput, IsThatOfRandomRunsWithFailures) {
  std::int64_t most_failures = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Simulated run(seed);
    const double begin = run.now;
    const bool supervised = seed % 2 == 0;
    int life = 0;
    while (!run.attempt(60, 5, supervised, life)) {
      if (supervised)
        ++life;
      else
        run.spend("between", run.draw(20));
    }
    const Goodput found = of(run.events);
    EXPECT_NEAR(wall(found), run.now - begin, 1e-4) << seed;
    for (const auto& [part, seconds] : {std::pair<std::string, double>{"new", found.new_steps},
                                        {"repeated", found.repeated_steps},
                                        {"saves", found.saves},
                                        {"evaluations", found.evaluations},
                                        {"load", found.load},
                                        {"start", found.start},
                                        {"detection", found.detection},
                                        {"other", found.other},
                                        {"between", found.between_jobs}})
      EXPECT_NEAR(seconds, run.seconds[part], 1e-4) << part << " of seed " << seed;
    EXPECT_EQ(found.repeated, run.executed - 60) << seed;
    EXPECT_EQ(found.attempts, run.attempts) << seed;
    EXPECT_EQ(found.failures, run.failures) << seed;
    most_failures = std::max(most_failures, run.failures);
  }
  EXPECT_GE(most_failures, 3) << "the runs try several restarts";
}

TEST(Goodput, OfARunningAttemptCountsUntilNow) {
  GoodputClock clock;
  clock.add({.kind = Kind::start, .time = 102, .began = 100});
  clock.add({.kind = Kind::load, .time = 103});
  const Goodput now = clock.at(113, 4);
  EXPECT_EQ(now.new_steps, 10);
  EXPECT_DOUBLE_EQ(now.share(), 10.0 / 13);
  clock.add({.kind = Kind::save, .time = 115, .step = 4, .seconds = 2});
  EXPECT_EQ(clock.at(115, 4).new_steps, 10);
  EXPECT_EQ(clock.at(115, 4).saves, 2);
  clock.add({.kind = Kind::end, .time = 116, .step = 4, .seconds = 1});
  EXPECT_EQ(clock.at(900, 4).total(), 16) << "after its end";
}

TEST(Goodput, DividesTimeBySteps) {  // where the event of the last repeated step is missing
  const Goodput found = of({{.kind = Kind::start, .time = 0, .step = 6, .step_time = 0},
                            {.kind = Kind::load, .time = 0, .step = 2},
                            {.kind = Kind::save, .time = 20, .step = 12, .seconds = 0}});
  EXPECT_DOUBLE_EQ(found.repeated_steps, 8);
  EXPECT_DOUBLE_EQ(found.new_steps, 12);
  EXPECT_EQ(found.repeated, 4);
}

/// Rank 0 and the supervisor are on nodes with different clocks.
TEST(Goodput, TakesClocksThatGoBackwards) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<GoodputEvent> events;
    double latest = 0;
    for (int i = 0; i < 20; ++i) {
      const double time = std::uniform_real_distribution<double>(0, 100)(random);
      GoodputEvent event{.kind = static_cast<Kind>(random() % 8),
                         .time = time,
                         .step = static_cast<std::int64_t>(random() % 30),
                         .seconds = time / 4,
                         .began = time - 1,
                         .step_time = time - 2};
      if (i == 0) event.kind = Kind::start;
      events.push_back(event);
      latest = std::max(latest, time);
    }
    const Goodput found = of(events);
    EXPECT_NEAR(wall(found), latest - events.front().began, 1e-9) << seed;
    for (const double part : {found.new_steps, found.repeated_steps, found.saves, found.evaluations, found.load,
                              found.start, found.detection, found.other, found.between_jobs})
      EXPECT_GE(part, 0) << seed;
  }
}

/// A job whose supervisor is killed ends without an event; the next job begins hours later.
TEST(Goodput, CountsNoQueueAsAStart) {
  std::vector<GoodputEvent> events{{.kind = Kind::start, .time = 2, .began = 0},
                                   {.kind = Kind::load, .time = 3},
                                   {.kind = Kind::failure, .time = 20, .step = 8, .began = 0, .step_time = 11},
                                   {.kind = Kind::restart, .time = 22},
                                   {.kind = Kind::start, .time = 9005, .step = 8, .began = 9000, .step_time = 11}};
  EXPECT_EQ(of(events).between_jobs, 8978);
  EXPECT_EQ(of(events).detection, 9);
  EXPECT_EQ(of(events).start, 9);
  events.back().life = 1;
  EXPECT_EQ(of(events).between_jobs, 0) << "the supervisor's own restart";
}

TEST(GoodputEvents, AreReadAsTheyWereWrittenWithoutWhatIsNoEvent) {
  const std::vector<GoodputEvent> events{
      {.kind = Kind::start, .time = 1.5e9 + 0.25, .step = 3, .began = 1.5e9, .step_time = 1.4e9, .life = 2},
      {.kind = Kind::load, .time = 7, .step = 1, .began = 7},
      {.kind = Kind::caught_up, .time = 8, .step = 3, .began = 8},
      {.kind = Kind::save, .time = 9, .step = 4, .seconds = 0.125, .began = 9},
      {.kind = Kind::evaluation, .time = 9, .step = 4, .seconds = 0.5, .began = 9},
      {.kind = Kind::failure, .time = 10, .step = 5, .began = 2, .step_time = 9.5},
      {.kind = Kind::restart, .time = 11, .began = 11},
      {.kind = Kind::end, .time = 12, .step = 6, .seconds = 1, .began = 12}};
  std::string text =
      "\n{\"event\":\"sa\n[]\n{\"event\":\"save\"}\n{\"event\":\"what\",\"time\":1}\n{\"event\":3,\"time\":1}\n";
  for (const GoodputEvent& event : events) text += to_json(event) + "\n";
  text += "{\"event\":\"save\",\"time\":13,\"sec";
  const std::vector<GoodputEvent> read = parse_goodput_events(text);
  ASSERT_EQ(read.size(), events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(to_json(read[i]), to_json(events[i]));
    EXPECT_EQ(read[i].kind, events[i].kind);
  }
}

TEST(Goodput, IsOneLine) {
  EXPECT_EQ(to_text(Goodput{.new_steps = 90, .start = 10, .attempts = 1}), "90.0% of 1 min 40 s: start 10.0 s");
  EXPECT_EQ(to_text(Goodput{.new_steps = 75,
                            .repeated_steps = 0.01,
                            .saves = 0.01,
                            .detection = 24.98,
                            .between_jobs = 1e6,
                            .repeated = 1,
                            .attempts = 3}),
            "75.0% of 1 min 40 s in 3 attempts: detection of failures 25.0 s, 1 repeated step 0.0 s");
  EXPECT_EQ(to_text(Goodput{}), "0.0% of 0.0 s");
  EXPECT_THAT(named_parts(Goodput{.new_steps = 3, .load = 1}), ElementsAre(Pair("new steps", 3), Pair("load", 1)));
}

TEST(LastStep, IsThatOfTheLastWholeRow) {
  const test::TemporaryDirectory root;
  const std::string path = root / "metrics.jsonl";
  EXPECT_EQ(last_step(path).step, 0) << "no file";
  io::write_text(path, "");
  EXPECT_EQ(last_step(path).step, 0);
  std::string text = R"({"step":1,"time":5,"x":")" + std::string(1 << 20, 'x') + "\"}\n";
  io::write_text(path, text);
  EXPECT_EQ(last_step(path).step, 1) << "a long row";
  text += R"({"step":2,"time":6.5})"
          "\n" +
          std::string("{\"step\":3,\"ti");
  io::write_text(path, text);
  EXPECT_EQ(last_step(path).step, 2);
  EXPECT_EQ(last_step(path).time, 6.5);
  EXPECT_EQ(last_step(root / "").step, 0) << "a directory";
}

TEST(ReadGoodput, EndsWithTheLastRow) {
  const test::TemporaryDirectory root;
  EXPECT_FALSE(read_goodput(root / "").has_value());
  io::write_text(root / "goodput.jsonl", to_json({.kind = Kind::restart, .time = 1}) + "\n");
  EXPECT_FALSE(read_goodput(root / "").has_value()) << "no attempt";
  io::write_text(root / "goodput.jsonl", to_json({.kind = Kind::start, .time = 12, .began = 10}) + "\n{\"event");
  append_goodput_event(root / "", {.kind = Kind::load, .time = 13});  // after a line that was cut off
  EXPECT_EQ(read_goodput(root / "")->total(), 3);
  io::write_text(root / "metrics.jsonl", R"({"step":4,"time":20})"
                                         "\n");
  EXPECT_EQ(read_goodput(root / "")->new_steps, 7);
}

}  // namespace
}  // namespace trireme::report::goodput_test

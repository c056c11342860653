// SPDX-License-Identifier: Apache-2.0
#include "train/console/progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

namespace trireme::train {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const StepRow row{.step = 120,
                  .loss = 2.31,
                  .grad_norm = 0.8213,
                  .lr = 3e-4,
                  .epoch = 10.91,
                  .step_seconds = 0.5,
                  .tokens_per_second = 12345};

const ProgressTimes times{.elapsed = 3662, .left = 190};
// Times of a line after one step of half a second.
const ProgressTimes after_one{.elapsed = 0.5, .left = 190};

/// Output of `show` for these rows.
template <class... Rows>
std::string shown(bool terminal, const Rows&... rows) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  Output output(ends[1]);
  ProgressLine progress(output, {.steps = 500, .terminal = terminal, .columns = 200});
  EXPECT_TRUE(progress.shows(120, 0.5, false));
  (progress.show(rows), ...);
  progress.finish();
  ::close(ends[1]);
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(::read(ends[0], text.data(), text.size())));
  ::close(ends[0]);
  return text;
}

TEST(PlainLine, IsKeysAndValues) {
  EXPECT_EQ(plain_line(row, 500, times),
            "step=120 loss=2.310000 grad_norm=0.82130 lr=0.0003 tokens_per_second=12345 step_seconds=0.5000 "
            "epoch=10.9 steps=500 time=1:01:02 left=0:03:10");
  StepRow skipped = row;
  skipped.skipped = true;
  skipped.target_tokens = 9;
  EXPECT_THAT(plain_line(skipped, 500, times), EndsWith(" skipped=true"));
}

TEST(ProgressLines, ShowSpikesApartFromNonFiniteSteps) {
  StepRow spike = row;
  spike.skipped = spike.spike = true;
  spike.target_tokens = 9;
  EXPECT_THAT(terminal_line(spike, 500, times, 200, false), HasSubstr("  SKIPPED: spike  grad norm"));
}

TEST(ProgressLines, ShowNoLossOfAStepWithoutTargets) {
  StepRow silent = row;
  silent.loss = std::numeric_limits<double>::quiet_NaN();
  silent.skipped = true;
  EXPECT_THAT(plain_line(silent, 500, times), HasSubstr(" loss=none "));
  EXPECT_THAT(terminal_line(silent, 500, times, 200, false), HasSubstr("loss none"));
  EXPECT_THAT(terminal_line(silent, 500, times, 200, false),
              HasSubstr("loss none  SKIPPED: no target counts  grad norm"));
}

TEST(PlainLine, HasTheLoadOfTheBusiestExpert) {
  StepRow uneven = row;
  uneven.expert_load = ExpertLoad{.max = 2.25, .layer = 1, .tokens = {9, 2, 1, 4}};
  EXPECT_EQ(plain_line(uneven, 500, times), plain_line(row, 500, times) + " expert_load_max=2.250");
  EXPECT_THAT(terminal_line(uneven, 500, times, 200, false),
              HasSubstr("grad norm 0.821  expert load 2.25x  12.3k tokens/s"));
}

TEST(TerminalLine, ShowsProgressOfSlowWork) {
  EXPECT_EQ(terminal_line(row, 500, times, 200, false),
            "step 120/500  loss 2.3100  grad norm 0.821  12.3k tokens/s  3 min 10 s left  [####----------------]");
}

TEST(ProgressLines, HaveMemoryAndMfuWhereTheyAreKnown) {
  StepRow measured = row;
  measured.mfu = 0.4123;
  measured.memory.spaces[0].peak_total = Bytes{3LL << 30};
  EXPECT_THAT(plain_line(measured, 500, times), HasSubstr(" epoch=10.9 memory=3GiB mfu=41.2% steps=500 "));
  EXPECT_THAT(terminal_line(measured, 500, times, 200, false), HasSubstr("s left  3 GiB  MFU 41.2%  [##"));
}

TEST(TerminalLine, NeverWraps) {
  StepRow skipped = row;
  skipped.mfu = 0.4;
  skipped.target_tokens = 9;
  for (const bool skips : {false, true}) {
    skipped.skipped = skips;
    for (int columns = 60; columns < 160; ++columns) {
      const std::string line = terminal_line(skipped, 500, times, columns, false);
      EXPECT_LT(line.size(), static_cast<std::size_t>(columns)) << line;
      EXPECT_THAT(line, StartsWith("step 120/500  loss 2.3100"));
    }
  }
}

TEST(TerminalLine, HasColorsOfNoWidth) {
  std::string line = terminal_line(row, 500, times, 110, true);
  for (const char* code : {"\033[1m", "\033[2m", "\033[0m", "\033[0m"}) {
    ASSERT_NE(line.find(code), std::string::npos) << code;
    line.erase(line.find(code), 4);
  }
  EXPECT_EQ(line, terminal_line(row, 500, times, 110, false));
}

TEST(ProgressLine, ShowsTheFirstEveryTenthTheLastAndSkippedStepsWhereNoTerminalIs) {
  Output output(STDOUT_FILENO);
  ProgressLine progress(output, {.steps = 34, .log_every = 10});
  std::vector<int> shown;
  for (int step = 3; step <= 34; ++step)
    if (progress.shows(step, 0.1, step == 25)) shown.push_back(step);
  EXPECT_THAT(shown, testing::ElementsAre(3, 10, 20, 25, 30, 34));
}

TEST(ProgressLine, IsALineAStepWithoutControlCharactersElsewhere) {
  const std::string line = plain_line(row, 500, after_one) + "\n";
  EXPECT_EQ(shown(false, row, row), line + line);
}

TEST(ProgressLine, RewritesItselfOnATerminal) {
  const std::string text = shown(true, row, row);
  EXPECT_THAT(text, StartsWith("\r\033[Kstep 120/500"));
  EXPECT_THAT(text, HasSubstr("]\033[0m\r\033[Kstep 120/500"));
  EXPECT_THAT(text, EndsWith("]\033[0m\n"));
}

TEST(ProgressLine, GivesAnEvaluationASeparateLine) {
  const EvalRow eval{.step = 120, .eval_loss = 2.5, .eval_tokens = 640, .eval_seconds = 0.25};
  const std::string line = "step=120 eval_loss=2.500000 eval_tokens=640 eval_seconds=0.250\n";
  EXPECT_EQ(shown(false, eval), line);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(shown(false, EvalRow{.step = 1, .eval_loss = nan}),
            "step=1 eval_loss=none eval_tokens=0 eval_seconds=0.000\n");
  EXPECT_EQ(shown(false, EvalRow{.step = 1, .eval_loss = 2, .eval_tokens = 3, .eval_losses = {{"a", nan}, {"b", 2}}}),
            "step=1 eval_loss=2.000000 eval_loss.a=none eval_loss.b=2.000000 eval_tokens=3 eval_seconds=0.000\n");
  EXPECT_THAT(shown(false, EvalRow{.step = 1, .eval_loss = nan, .eval_tokens = 3}), HasSubstr("eval_loss=nan"));
  EXPECT_THAT(shown(true, row, eval), EndsWith("]\033[0m\n" + terminal_line(eval, 500, true) + "\n"));
}

TEST(TerminalLine, ShowsAnEvaluationInTheFormOfASteps) {
  const EvalRow eval{.step = 120,
                     .eval_loss = 2.40123,
                     .eval_tokens = 12345,
                     .eval_seconds = 200,
                     .eval_losses = {{"web", 2.20114}, {"code", 2.6}}};
  EXPECT_EQ(terminal_line(eval, 500, false),
            "step 120/500  eval loss 2.4012  web 2.2011  code 2.6000  12.3k tokens  3 min 20 s");
  EXPECT_THAT(terminal_line(eval, 500, true), HasSubstr("eval loss \033[1m2.4012\033[0m  web"));
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(terminal_line(EvalRow{.step = 1, .eval_loss = nan}, 5, false), "step 1/5  eval loss none  0 tokens  0.0 s");
  EXPECT_THAT(terminal_line(EvalRow{.step = 1, .eval_loss = nan, .eval_tokens = 3}, 5, false), HasSubstr("loss nan"));
}

}  // namespace
}  // namespace trireme::train

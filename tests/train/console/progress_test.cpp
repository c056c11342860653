// SPDX-License-Identifier: Apache-2.0
#include "train/console/progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <string>

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

/// What `show` writes for these rows.
template <class... Rows>
std::string shown(bool terminal, const Rows&... rows) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  Output output(ends[1]);
  ProgressLine progress(output, 500, terminal);
  (progress.show(rows), ...);
  progress.finish();
  ::close(ends[1]);
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(::read(ends[0], text.data(), text.size())));
  ::close(ends[0]);
  return text;
}

TEST(PlainLine, IsKeysAndValues) {
  EXPECT_EQ(plain_line(row, 500, 190),
            "step=120 loss=2.310000 grad_norm=0.82130 lr=0.0003 tokens_per_second=12345 step_seconds=0.5000 "
            "epoch=10.9 steps=500 seconds_left=190");
  StepRow skipped = row;
  skipped.skipped = true;
  skipped.target_tokens = 9;
  EXPECT_THAT(plain_line(skipped, 500, 190), EndsWith(" skipped=true"));
}

TEST(ProgressLines, SayThatAStepWithoutTargetsHasNoLoss) {
  StepRow silent = row;
  silent.loss = std::numeric_limits<double>::quiet_NaN();
  silent.skipped = true;
  EXPECT_THAT(plain_line(silent, 500, 190), HasSubstr(" loss=none "));
  EXPECT_THAT(terminal_line(silent, 500, 190), HasSubstr("loss none"));
  EXPECT_THAT(terminal_line(silent, 500, 190), EndsWith("SKIPPED: no target counts"));
}

TEST(PlainLine, HasTheLoadOfTheBusiestExpert) {
  StepRow uneven = row;
  uneven.expert_load = ExpertLoad{.max = 2.25, .layer = 1, .tokens = {9, 2, 1, 4}};
  EXPECT_EQ(plain_line(uneven, 500, 190), plain_line(row, 500, 190) + " expert_load_max=2.250");
  EXPECT_THAT(terminal_line(uneven, 500, 190), HasSubstr("grad norm 0.821  expert load 2.25x  12.3k tokens/s"));
}

TEST(TerminalLine, SaysWhatAPersonWaitsFor) {
  EXPECT_EQ(terminal_line(row, 500, 190),
            "step 120/500  loss 2.3100  grad norm 0.821  12.3k tokens/s  3 min 10 s left");
}

TEST(ProgressLine, IsALineAStepWithoutControlCharactersElsewhere) {
  const std::string line = plain_line(row, 500, 190) + "\n";
  EXPECT_EQ(shown(false, row, row), line + line);
}

TEST(ProgressLine, RewritesItselfOnATerminal) {
  const std::string text = shown(true, row, row);
  EXPECT_THAT(text, StartsWith("\r\033[Kstep 120/500"));
  EXPECT_THAT(text, HasSubstr("3 min 10 s left\r\033[Kstep 120/500"));
  EXPECT_THAT(text, EndsWith("left\n"));
}

TEST(ProgressLine, GivesAnEvaluationALineOfItsOwn) {
  const EvalRow eval{.step = 120, .eval_loss = 2.5, .eval_tokens = 640, .eval_seconds = 0.25};
  const std::string line = "step=120 eval_loss=2.500000 eval_tokens=640 eval_seconds=0.250\n";
  EXPECT_EQ(shown(false, eval), line);
  EXPECT_THAT(shown(true, row, eval), EndsWith("left\n" + line));
  EXPECT_THAT(shown(true, row, eval), Not(HasSubstr(" loss=")));
}

}  // namespace
}  // namespace trireme::train

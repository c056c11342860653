// SPDX-License-Identifier: Apache-2.0
#include "train/record/row_files.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/temporary_directory.hpp"
#include "train/record/event_reader.hpp"
#include "trireme/base/error.hpp"

namespace trireme::train {
namespace {

class RowFilesTest : public testing::Test {
 protected:
  RowFilesTest() { config_.run.output = directory_.path(); }

  void write(std::int64_t keep_steps, std::int64_t last) const {
    RowFiles files(config_, keep_steps);
    for (std::int64_t step = keep_steps + 1; step <= last; ++step) {
      files.append(StepRow{.step = step, .loss = 10 * static_cast<double>(keep_steps) + static_cast<double>(step)});
      if (step % 3 == 0) files.append(EvalRow{.step = step, .eval_loss = static_cast<double>(step) / 4});
    }
  }
  [[nodiscard]] std::string events() const { return config_.run.output + "/tensorboard"; }

  const test::TemporaryDirectory directory_;
  config::RunConfig config_;
};

/// The points of `key` in metrics.jsonl.
ReadCurve lines_of(const std::string& path, const char* key) {
  ReadCurve curve;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const auto row = nlohmann::json::parse(line); row.contains(key) && !row[key].is_null())
      curve.emplace_back(row["step"].get<std::int64_t>(), row[key].get<float>());
  return curve;
}

// Lives that end after, at and between steps with an evaluation; the last one begins anew.
TEST_F(RowFilesTest, HaveEqualLinesAndEventsOverManyLives) {
  config_.metrics.tensorboard = true;
  config_.train.eval_every = 3;
  for (const auto& [keep_steps, last] : {std::pair(0, 7), {6, 9}, {9, 11}, {5, 10}, {10, 10}, {0, 2}}) {
    write(keep_steps, last);
    const std::string lines = config_.run.output + "/metrics.jsonl";
    const auto curves = read_curves(events());
    EXPECT_EQ(curves.at("loss/train"), lines_of(lines, "loss")) << keep_steps << " " << last;
    EXPECT_EQ(curves.at("loss/train").size(), static_cast<std::size_t>(last));
    const ReadCurve validation = lines_of(lines, "eval_loss");
    EXPECT_EQ(validation.size(), static_cast<std::size_t>(last / 3));
    EXPECT_EQ(curves.contains("loss/validation") ? curves.at("loss/validation") : ReadCurve{}, validation)
        << keep_steps << " " << last;
  }
}

TEST_F(RowFilesTest, AreLinesAloneUnlessEventsAreAskedFor) {
  write(0, 3);
  EXPECT_EQ(lines_of(config_.run.output + "/metrics.jsonl", "loss").size(), 3U);
  EXPECT_FALSE(std::filesystem::exists(events()));
}

TEST_F(RowFilesTest, RefuseToBeginWhereEventsCannotBeWritten) {
  config_.metrics.tensorboard = true;
  std::ofstream(events()) << "a file";
  EXPECT_THROW(RowFiles(config_, 0), WriteError);
}

}  // namespace
}  // namespace trireme::train

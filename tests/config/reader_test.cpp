// SPDX-License-Identifier: Apache-2.0
#include "config/reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "config/sample_run.hpp"

namespace trireme::config {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string golden = TRIREME_SOURCE_DIR "/tests/config/golden/";

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// TRIREME_UPDATE_GOLDENS=1 writes the report anew, so that a diff shows the change.
TEST(RunFileMistakes, AreAllReportedAtOnceInTheOrderOfTheirLines) {
  const std::string report = mistakes_of(content_of(golden + "mistakes.toml"),
                                         {"lr.schedule=cosin", "train.stepz=5", "nonsense", "model.head_dim=[1"}) +
                             "\n";
  if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) std::ofstream(golden + "mistakes.txt") << report;
  EXPECT_EQ(report, content_of(golden + "mistakes.txt"));
}

TEST(RunFileMistakes, InTomlNameTheLine) {
  EXPECT_THAT(mistakes_of("[model]\nheads = 4\nheads = 5\n"), AllOf(StartsWith("run.toml:3: "), HasSubstr("'heads'")));
  EXPECT_THAT(mistakes_of("[model]\n[data]\n[model]\n"), StartsWith("run.toml:3: "));
  EXPECT_THAT(mistakes_of("[model]\nheads = 9223372036854775808\n"), StartsWith("run.toml:2: "));
  EXPECT_THAT(mistakes_of("[model\n"), StartsWith("run.toml:1: "));
}

TEST(RunFileMistakes, OutsideOfSectionsNameTheSection) {
  EXPECT_THAT(mistakes_of("seq_len = 4\n" + smallest_run),
              HasSubstr("run.toml:1: seq_len: a key outside of all sections; "
                        "did you mean data.seq_len?"));
  EXPECT_THAT(mistakes_of("optimizer = \"adamw\"\n" + smallest_run), HasSubstr("[optimizer] on a line of its own"));
  EXPECT_THAT(mistakes_of("\"\\u0007\" = 1\n" + smallest_run), HasSubstr("\"\\u0007\": a key outside"));
}

TEST(RunFileMistakes, AreCountedAfterTheFirstFifty) {
  std::string text = smallest_run + "[lr]\n";
  for (int i = 0; i < 20'000; ++i) text += "key" + std::to_string(i) + " = 1\n";
  const std::string report = mistakes_of(text);
  EXPECT_THAT(report, AllOf(StartsWith("20000 mistakes"), HasSubstr("... and 19950 more")));
  EXPECT_LT(report.size(), 20'000U);
}

TEST(RunFileMistakes, OfWrongTypesReportTheValueFound) {
  EXPECT_THAT(mistakes_with({"model.layers=true"}), HasSubstr("found true, expected an integer, from 1 to 65536"));
  EXPECT_THAT(mistakes_with({"model.layers=2.0"}), HasSubstr("found 2.0, expected an integer"));
  EXPECT_THAT(mistakes_with({"optimizer.lr=inf"}), HasSubstr("found inf, expected a finite number"));
  EXPECT_THAT(mistakes_with({"data.train=3"}), HasSubstr("found 3, expected a path, a list of paths"));
  EXPECT_THAT(mistakes_with({"data.train=[]"}), HasSubstr("found a list of 0, expected a path, a list"));
  EXPECT_THAT(mistakes_with({"data.train=[{path=\"a\"}]"}), HasSubstr("weight is missing"));
  EXPECT_THAT(mistakes_with({"data.train=[{path=\"a\",weight=0}]"}), HasSubstr("weight = 0 where it takes"));
  EXPECT_THAT(mistakes_with({"data.train=[{path=\"a\",weight=1},\"b\"]"}), HasSubstr("for all files or for none"));
  EXPECT_THAT(mistakes_with({"data.ignore_targets=[1, -1]"}), HasSubstr("element 1 is -1"));
  EXPECT_THAT(mistakes_of(smallest_run + "[run]\nname = 1979-05-27\n"), HasSubstr("found a date or time"));
  EXPECT_THAT(mistakes_with({"run.name=a/b"}), HasSubstr("without /"));
}

TEST(Overrides, ReplaceValuesOfTheFile) {
  const std::string wrong = smallest_run + "[lr]\nschedule = 3\n";
  EXPECT_THAT(mistakes_of(wrong), HasSubstr("run.toml:19: lr.schedule: found 3"));
  EXPECT_EQ(parse(wrong, {"lr.schedule=linear"}).lr.schedule, LrSchedule::linear);
  EXPECT_EQ(with({"train.steps=20", "train.steps=30"}).train.steps, 30);
  EXPECT_EQ(with({" train.steps = 20 "}).train.steps, 20);
}

TEST(Overrides, TakeBareWordsAsStrings) {
  EXPECT_EQ(with({"data.train=/a/b c.bin"}).data.train.at(0).path, "/a/b c.bin");
  EXPECT_EQ(with({"run.name=123"}).run.name, "123");
  EXPECT_EQ(with({"run.name=2026-11-21"}).run.name, "2026-11-21");
  EXPECT_EQ(with({"run.name=true"}).run.name, "true");
  EXPECT_EQ(with({"run.name=\"quoted\""}).run.name, "quoted");
  EXPECT_EQ(with({"run.output=a=b"}).run.output, "a=b");
}

TEST(Overrides, NameThemselvesInMistakes) {
  EXPECT_THAT(mistakes_with({"model.hiden_size=64"}),
              HasSubstr("--set model.hiden_size=64: model.hiden_size: unknown key; did you mean model.hidden_size?"));
  EXPECT_THAT(mistakes_with({"modle.layers=1"}), HasSubstr("[modle]: unknown section; did you mean [model]?"));
  EXPECT_THAT(mistakes_with({"layers=1"}), HasSubstr("expected section.key=value"));
  EXPECT_THAT(mistakes_with({"model.layers"}), HasSubstr("expected section.key=value"));
  EXPECT_THAT(mistakes_with({"model.layers=1\nmodel.heads=2"}), HasSubstr("without control characters"));
  EXPECT_THAT(mistakes_with({"data.ignore_targets=[1"}), HasSubstr("not a TOML value"));
  EXPECT_THAT(mistakes_with({"model.layers=-1"}), HasSubstr("--set model.layers=-1: model.layers: found -1"));
}

}  // namespace
}  // namespace trireme::config

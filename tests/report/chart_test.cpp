// SPDX-License-Identifier: Apache-2.0
#include "report/chart.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace trireme::report {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Thinned, KeepsEndsAndSpikes) {
  Points points;
  for (int i = 0; i < 100000; ++i) points.push_back({static_cast<double>(i), i == 43211 ? 9. : i == 77777 ? -9. : 1.});
  const Points thin = thinned(points, 1000);
  EXPECT_LE(thin.size(), 1002U);
  EXPECT_EQ(thin.front().x, 0);
  EXPECT_EQ(thin.back().x, 99999);
  const auto [low, high] = std::minmax_element(thin.begin(), thin.end(), [](auto& a, auto& b) { return a.y < b.y; });
  EXPECT_EQ(high->x, 43211);
  EXPECT_EQ(low->x, 77777);
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end(), [](auto& a, auto& b) { return a.x < b.x; }));
  EXPECT_EQ(thinned(thin, 2000).size(), thin.size());
}

TEST(Ticks, AreRoundNumbers) {
  EXPECT_THAT(ticks(0, 1, 5), ElementsAre(0, DoubleEq(0.2), DoubleEq(0.4), DoubleEq(0.6), DoubleEq(0.8), 1));
  EXPECT_THAT(ticks(-3, 42, 5), ElementsAre(0, 10, 20, 30, 40));
  EXPECT_THAT(ticks(1e9, 4e9, 3), ElementsAre(1e9, 2e9, 3e9, 4e9));
}

TEST(TextOf, HasUnits) {
  EXPECT_EQ(text_of(1536, Unit::bytes), "1.5 KiB");
  EXPECT_EQ(text_of(0.0123, Unit::seconds), "12.3 ms");
  EXPECT_EQ(text_of(0.25, Unit::share), "25 %");
  EXPECT_EQ(text_of(0.0003, Unit::number), "0.0003");
}

TEST(Draw, PutsTheLowestAndTheHighestAtTheEndsOfTheAxis) {
  const std::string svg = draw({.title = "A<B>", .lines = {{.label = "one", .points = {{1, 10}, {2, 30}, {3, 20}}}}});
  EXPECT_THAT(svg, HasSubstr("A&lt;B&gt;"));
  EXPECT_THAT(svg, HasSubstr("class=\"l0\" d=\"M78.0 226.0L392.0 40.0L706.0 133.0\""));
}

TEST(Draw, ShowsNumbersOfALineUnderThePointer) {
  Points points;
  for (int i = 1; i <= 1000; ++i) points.push_back({static_cast<double>(i), 2.0 * i});
  const std::string svg = draw({.title = "Loss", .lines = {{.label = "training", .points = points}}});
  EXPECT_THAT(svg, HasSubstr("<title>training: 2000 at 1000</title>"));
  std::size_t marks = 0;
  for (std::size_t at = 0; (at = svg.find("class=\"number\"", at)) != std::string::npos; ++at) ++marks;
  EXPECT_GT(marks, 80U);
  EXPECT_LE(marks, 100U);
  EXPECT_THAT(draw({.title = "Loss", .lines = {{.label = "", .points = {{1, 2}, {2, 4}}}}}),
              HasSubstr("<title>Loss: 4 at 2</title>"));
}

TEST(UsualRange, LeavesOutIsolatedPointsAndKeepsAFall) {
  Points points;
  for (int i = 0; i < 300; ++i)
    points.push_back({static_cast<double>(i), 2 + 8 * std::exp(-i / 20.0) + 0.01 * (i % 3)});
  EXPECT_NEAR(usual_range(points).high, 10, 0.01) << "the first loss is no outlier";
  points[200].y = 40;
  EXPECT_NEAR(usual_range(points).high, 10, 0.01);
  points[250].y = -30;
  EXPECT_GT(usual_range(points).low, 1.9);
  for (std::size_t i = 200; i < 230; ++i) points[i].y = 40 + 0.01 * static_cast<double>(i % 3);
  EXPECT_GT(usual_range(points).high, 39) << "thirty steps are no outlier";
  EXPECT_EQ(usual_range({{1, 1}, {2, 1}, {3, 90}}).high, 90) << "three points have none";
}

TEST(Smoothed, HasNoLagAndKeepsTheEnds) {
  Points points;
  for (int i = 0; i < 50; ++i) points.push_back({static_cast<double>(i), 3.0 * i + (i % 2 == 0 ? 1 : -1)});
  const Points mean = smoothed(points, 9);
  EXPECT_EQ(mean.front().y, points.front().y);
  EXPECT_EQ(mean.back().y, points.back().y);
  for (std::size_t i = 4; i < 46; ++i) EXPECT_NEAR(mean[i].y, 3.0 * static_cast<double>(i), 0.12) << i;
}

TEST(Draw, MarksPointsBeyondTheAxisAndSkippedSteps) {
  Chart chart{.title = "t", .lines = {{.label = "a", .points = {{0, 1}, {1, 9}, {2, 8}, {3, 2}, {4, -5}, {5, 1}}}}};
  chart.limits = Range{.low = 1, .high = 2};
  chart.skipped = {3};
  const std::string svg = draw(chart);
  EXPECT_THAT(svg, HasSubstr("a: 9 at 1, beyond the axis"));
  EXPECT_THAT(svg, HasSubstr("a: -5 at 4, beyond the axis"));
  EXPECT_THAT(svg, Not(HasSubstr("a: 8 at 2, beyond"))) << "one mark for each excursion";
  EXPECT_THAT(svg, HasSubstr("skipped: 3</title>"));
  EXPECT_THAT(svg, HasSubstr("M78.0 226.0L203.6 40.0M329.2 40.0L454.8 40.0")) << "interrupted between the two";
}

TEST(Legend, ContinuesInTheNextRowAndLeavesOutLinesWithoutAName) {
  const std::vector<std::pair<std::string, int>> names(30, {"a verb of a step", 1});
  const Legend rows = legend(names, 100, 700);
  EXPECT_EQ(rows.bottom, 27 + 13 * 7) << "four in a row";
  EXPECT_EQ(legend({}, 100, 700).bottom, 27) << "plots beside each other begin at the same height";
  EXPECT_THAT(draw({.title = "t", .lines = {{.label = "", .points = {{1, 1}, {2, 2}}}}}), Not(HasSubstr("<rect")));
}

TEST(Draw, MarksRestarts) {
  const std::vector<Line> lines{{.label = "a", .points = {{1, 1}, {9, 2}}}};
  EXPECT_THAT(draw({.title = "t", .lines = lines, .verticals = {5}}), HasSubstr("restart before step 5</title>"));
  EXPECT_THAT(draw({.title = "t", .lines = lines}), Not(HasSubstr("restart")));
}

TEST(Draw, HasTicksOfRoundBinaryUnits) {
  const std::string svg = draw({.title = "memory",
                                .unit = Unit::bytes,
                                .lines = {{.label = "a", .points = {{1, 0}, {2, 4.0 * 1024 * 1024 * 1024}}}}});
  for (const char* tick : {">0 B<", ">1 GiB<", ">4 GiB<"}) EXPECT_THAT(svg, HasSubstr(tick));
}

TEST(Draw, StacksAreas) {
  const std::string svg = draw({.title = "memory",
                                .lines = {{.label = "a", .color = 0, .points = {{0, 1}, {1, 1}}},
                                          {.label = "b", .color = 1, .points = {{0, 1}, {1, 3}}}},
                                .stacked = true});
  EXPECT_THAT(svg, HasSubstr("class=\"f0\" d=\"M78.0 179.5L706.0 179.5L706.0 226.0L78.0 226.0Z\""));
  EXPECT_THAT(svg, HasSubstr("class=\"f1\" d=\"M78.0 133.0L706.0 40.0L706.0 226.0L78.0 226.0Z\""));
}

TEST(Draw, HoldsWithOnePointAndWithEqualNumbers) {
  EXPECT_EQ(draw({.title = "empty", .lines = {{.label = "none"}}}), "");
  for (const Points& points : {Points{{1, 0}}, Points{{1, 5}, {2, 5}}, Points{{1, 1e-9}, {2, 1e9}}})
    for (const bool logarithmic : {false, true}) {
      const std::string svg =
          draw({.title = "t", .lines = {{.label = "a", .points = points}}, .logarithmic = logarithmic});
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr("inf")));
    }
}

TEST(DrawTimeline, HasARowForEachLaneOfEachRank) {
  TracedStep step{.step = 4};
  step.spans["rank 0 on n1"] = {{"compute", "forward b0 m0", 0, 0.5}, {"gather", "unshard b1", 0.25, 1}};
  step.spans["rank 1 on n1"] = {{"compute", "forward b0 m0", 0, 0.5}};
  const std::string svg = draw_timeline(step);
  for (const char* row : {"rank 0 on n1 compute", "rank 0 on n1 gather", "rank 1 on n1 compute"})
    EXPECT_THAT(svg, HasSubstr(row));
  step.spans["rank 2 on a-node-with-a-long-name"] = {{"compute", "forward b0 m0", 0, 0.5}};
  EXPECT_THAT(draw_timeline(step), HasSubstr("<text class=\"title\" x=\"264.")) << "there is space for it";
  EXPECT_THAT(svg, HasSubstr("x=\"419.00\" y=\"58\" width=\"807.00\"")) << "a quarter to the end, in the second row";
  EXPECT_THAT(svg, HasSubstr(">forward b0 m0</text>")) << "the op's name in its bar";
  step.spans["rank 1 on n1"].push_back({"compute", "backward b7 m3 -> b0 grad1.1", 0.5, 0.53});
  EXPECT_THAT(draw_timeline(step), testing::AllOf(HasSubstr(">b7</text>"), Not(HasSubstr(">backward b7 m3</text>"))));
}

}  // namespace
}  // namespace trireme::report

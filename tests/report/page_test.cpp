// SPDX-License-Identifier: Apache-2.0
#include "trireme/report/page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "trireme/config/load.hpp"

namespace trireme::report {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RunRecord run_of(const std::string& name, int steps, double loss) {
  RunRecord run{.name = name};
  for (int step = 1; step <= steps; ++step)
    for (const auto& [key, value] : {std::pair<const char*, double>{"step", step},
                                     {"loss", loss / step},
                                     {"lr", 1e-3 / 3},
                                     {"step_seconds", 0.1},
                                     {"tokens_per_second", 1e4},
                                     {"tokens_per_second_per_rank", 5e3}})
      run.series[key].push_back({static_cast<double>(step), value});
  return run;
}

/// Elements that are opened and not closed, or closed and not opened.
std::vector<std::string> unbalanced(const std::string& html) {
  std::vector<std::string> open, wrong;
  for (std::size_t at = 0; (at = html.find('<', at)) != std::string::npos; ++at) {
    const std::size_t end = html.find('>', at);
    const std::string tag = html.substr(at + 1, end - at - 1);
    const std::string name =
        tag.substr(tag.starts_with('/') ? 1 : 0, tag.find_first_of(" /", 1) - (tag.starts_with('/') ? 1 : 0));
    if (tag.starts_with('!') || tag.ends_with('/') || name == "meta") continue;
    if (!tag.starts_with('/'))
      open.push_back(name);
    else if (!open.empty() && open.back() == name)
      open.pop_back();
    else
      wrong.push_back("/" + name);
  }
  wrong.insert(wrong.end(), open.begin(), open.end());
  return wrong;
}

json series_of(const std::string& html) {
  const std::string begin = "id=\"series\">";
  const std::size_t at = html.find(begin) + begin.size();
  return json::parse(html.substr(at, html.find("</script>", at) - at));
}

TEST(Page, HoldsTheNumbersInFull) {
  const RunRecord run = run_of("one", 40, 5.0);
  const std::string html = page(std::span(&run, 1));
  const json all = series_of(html);
  ASSERT_EQ(all.size(), 1U);
  ASSERT_EQ(all[0]["series"]["loss"].size(), 40U);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(all[0]["series"]["loss"][i][0].get<double>(), run.series.at("loss")[i].x);
    EXPECT_EQ(all[0]["series"]["loss"][i][1].get<double>(), run.series.at("loss")[i].y);
  }
  EXPECT_THAT(html, HasSubstr("<th>step, median</th><td>100 ms</td>"));
  EXPECT_THAT(html, HasSubstr("<th>ranks</th><td>2</td>"));
  EXPECT_THAT(html, HasSubstr("<th>last loss</th><td>0.125</td>"));
}

TEST(Page, ShowsTheMeshAndTheSettingsThatRunsDifferIn) {
  RunRecord run = run_of("one", 3, 5.0);
  run.config = config::parse_run_file(R"(
[model]
vocab_size = 64
hidden_size = 16
intermediate_size = 32
layers = 1
heads = 2
[data]
train = "x"
seq_len = 8
[mesh]
tensor = 2
[batch]
global = 4
micro = 2
[memory]
offload = "optimizer"
[train]
steps = 3)",
                                      "run.toml");
  EXPECT_THAT(page(std::span(&run, 1)),
              testing::AllOf(HasSubstr("<th>mesh</th><td>1x1x2 (replicate x shard x tensor)</td>"),
                             HasSubstr("<td>4 sequences of 8 tokens, microbatches of 2</td>"),
                             HasSubstr("<td>recompute selective, offload optimizer</td>")));
  run.config->batch.micro = 3;  // does not divide the batch
  EXPECT_THAT(page(std::span(&run, 1)), Not(HasSubstr("<th>mesh</th>")));
}

TEST(Page, KeepsFactsInOrderAndARunsColorInEveryChart) {
  RunRecord runs[] = {run_of("one", 3, 5.0), run_of("two", 3, 5.0)};
  runs[0].series["eval_loss"] = {{3, 4.0}};
  runs[0].series.erase("tokens_per_second_per_rank");  // of which the number of ranks is known
  const std::string html = page(runs);
  EXPECT_LT(html.find("<th>ranks</th>"), html.find("<th>steps</th>"));
  // loss, gradient norm and others: two lines of runs, and no third color.
  EXPECT_THAT(html, HasSubstr("class=\"l1\""));
  EXPECT_THAT(html, Not(HasSubstr("class=\"l2\"")));
}

TEST(Page, NeedsNothingElse) {
  RunRecord run = run_of("one", 3, 5.0);
  run.trace = TracedStep{.step = 3};
  run.trace->spans["rank 0"] = {{"compute", "forward b0", 0, 1}};
  run.trace->memory["activations"] = {{0, 1}, {1, 2}};
  run.ranks = {{"rank 0 on n1", 0.1, 0.2, 0.3}};
  run.bytes["shard"]["all_gather"] = 1024;
  for (const char* category : {"activations", "total", "workspace"})
    run.series[std::string("memory_peak_bytes/device/") + category] = {{1, 2048}};
  const std::string html = page(std::span(&run, 1));
  for (const char* other : {"http:", "https:", "src=", "href=", "url(", "@import"})
    EXPECT_THAT(html, Not(HasSubstr(other)));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(unbalanced(html), ElementsAre());
  for (const char* part :
       {"Timeline of step 3", "Device memory over step 3", "Step times by rank", "Traffic of a step", "1 KiB"})
    EXPECT_THAT(html, HasSubstr(part));
  EXPECT_GT(html.find("<td>total</td>"), html.find("<td>workspace</td>")) << "a sum stands below";
}

TEST(Page, PutsRunsSideBySide) {
  const std::vector<RunRecord> runs{run_of("first", 4, 5.0), run_of("second", 8, 4.0)};
  const std::string html = page(runs);
  EXPECT_THAT(html, HasSubstr("<tr><th>run</th><th>first</th><th>second</th></tr>"));
  EXPECT_THAT(html, HasSubstr("<th>steps</th><td>4</td><td>8</td>"));
  EXPECT_EQ(series_of(html).size(), 2U);
  EXPECT_THAT(unbalanced(html), ElementsAre());
}

TEST(Page, NamesLinesByWhatTheyAre) {
  std::vector<RunRecord> runs{run_of("first", 4, 5.0), run_of("second", 8, 4.0)};
  for (RunRecord& run : runs) run.series["eval_losses/web"] = run.series["eval_loss"] = {{2, 4.5}, {4, 3.5}};
  const std::string two = page(runs), one = page(std::span(runs).first(1));
  for (const char* label : {">first training<", ">second validation, web<"}) EXPECT_THAT(two, HasSubstr(label));
  for (const char* label : {">training<", ">validation, web<"}) EXPECT_THAT(one, HasSubstr(label));
  EXPECT_THAT(one, Not(HasSubstr("\">first<"))) << "beside the heading";
}

TEST(Page, ShowsTheLoadOfExpertsWhereThereAreAny) {
  RunRecord run = run_of("one", 4, 5.0);
  EXPECT_THAT(page(std::span(&run, 1)), Not(HasSubstr("busiest expert")));
  for (int step = 1; step <= 4; ++step) run.series["expert_load_max"].push_back({static_cast<double>(step), 1.5});
  const std::string html = page(std::span(&run, 1));
  EXPECT_THAT(html, HasSubstr("Load of the busiest expert, over the mean"));
  EXPECT_EQ(series_of(html)[0]["series"]["expert_load_max"].size(), 4U);
}

TEST(Page, TakesNamesForWhatTheyAre) {
  RunRecord run = run_of("</script><script>alert(1)</script>&\"'\xff", 2, 1.0);
  run.ranks = {{"<b>rank", 1, 1, 1}};
  const std::string html = page(std::span(&run, 1));
  EXPECT_THAT(html, Not(HasSubstr("<script>")));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_EQ(series_of(html).size(), 1U);
  EXPECT_THAT(unbalanced(html), ElementsAre());
}

TEST(Page, WarnsOfWhatAPersonShouldLookAt) {
  RunRecord run = run_of("one", 4, 5.0);
  EXPECT_THAT(page(std::span(&run, 1)), Not(HasSubstr("class=\"warning\"")));
  run.skipped = 2;
  run.hang_reports = {"hang-rank3.json"};
  run.ranks = {{"rank 0", 1, 1, 1}, {"rank 1", 2, 2, 2}};
  for (int step = 1; step <= 4; ++step) run.series["data_seconds"].push_back({static_cast<double>(step), 0.05});
  const std::string html = page(std::span(&run, 1));
  for (const char* text :
       {"2 steps were skipped", "hang-rank3.json", "rank 1 is the slowest", "50 % of a step&#39;s time"})
    EXPECT_THAT(html, HasSubstr(text));
  EXPECT_LT(html.find("class=\"warning\""), html.find("id=\"facts\"")) << "first of all";
}

}  // namespace
}  // namespace trireme::report

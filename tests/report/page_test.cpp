// SPDX-License-Identifier: Apache-2.0
#include "trireme/report/page.hpp"

#include <fmt/format.h>
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

/// A run of `steps` steps with noise, time stamps and device memory.
RunRecord long_run(const std::string& name, int steps) {
  RunRecord run{.name = name};
  for (int step = 1; step <= steps; ++step)
    for (const auto& [key, value] : {std::pair<const char*, double>{"step", step},
                                     {"time", 1.75e9 + 2 * step},
                                     {"loss", 3 + 0.01 * (step % 7)},
                                     {"grad_norm", 0.5 + 0.01 * (step % 5)},
                                     {"tokens", 1024.0 * step},
                                     {"step_seconds", 2},
                                     {"tokens_per_second", 512},
                                     {"memory_peak_bytes/device/total", 3 << 20},
                                     {"tokens_per_second_per_rank", 256}})
      run.series[key].push_back({static_cast<double>(step), value});
  return run;
}

TEST(Page, BeginsWithFourFiguresAndTheOriginOfTheRun) {
  RunRecord run = long_run("one", 400);
  run.device = "NVIDIA H100";
  run.version = "9.8.7 (abc)";
  run.starts = {201};
  for (Point& time : run.series["time"]) time.y += time.x > 200 ? 3600 : 0;  // between the starts
  const std::string html = page(std::span(&run, 1));
  for (const char* text :
       {"2025-06-15 15:06 UTC, 2 ranks on NVIDIA H100, Trireme 9.8.7 (abc)", "<span>loss</span><strong>3.0",
        "mean of the last 9 points", "<span>tokens/s</span><strong>512</strong>",
        "<span>time</span><strong>13 min 20 s</strong>", "<span>memory</span><strong>3 MiB</strong>"})
    EXPECT_THAT(html, HasSubstr(text));
  EXPECT_LT(html.find("class=\"figures\""), html.find("<svg"));
  EXPECT_LT(html.find("aria-label=\"Loss"), html.find("id=\"facts\"")) << "the loss is the first chart";
}

TEST(Page, ShowsTheLossOverStepsTokensAndTimeAndOnSmallScreens) {
  RunRecord run = long_run("one", 400);
  const std::string html = page(std::span(&run, 1));
  for (const char* text :
       {"id=\"steps\" checked", "id=\"tokens\"", "id=\"time\"", "mean of 9 points", "class=\"raw l0\"",
        ">time of training<", ">12 min<", "viewBox=\"0 0 380 ", "viewBox=\"0 0 1240 "})
    EXPECT_THAT(html, HasSubstr(text));
  EXPECT_THAT(unbalanced(html), ElementsAre());
  run.series.erase("time");
  EXPECT_THAT(page(std::span(&run, 1)), Not(HasSubstr("id=\"time\"")));
}

TEST(Page, MentionsSpikesAndTheirSteps) {
  RunRecord run = long_run("one", 400);
  EXPECT_THAT(page(std::span(&run, 1)), Not(HasSubstr("class=\"warning\"")));
  run.series["grad_norm"][299].y = 26;
  run.series["grad_norm"][399].y = 13;
  run.series["loss"][300].y = 4.5;
  run.skipped = 2;
  run.skipped_at = {7, 8};
  const std::string html = page(std::span(&run, 1));
  for (const char* text : {"rose to 26 at step 300, 50 times the median", "at steps 300, 400",
                           "the loss rose to 4.5 at step 301", "not finite (steps 7, 8)"})
    EXPECT_THAT(html, HasSubstr(text));
}

TEST(Page, ShowsTheNormsOfSomeBlocksInTheOrderOfTheModel) {
  RunRecord run = run_of("one", 4, 5.0);
  EXPECT_THAT(page(std::span(&run, 1)), Not(HasSubstr("Gradient norm of parameter blocks")));
  for (const char* block :
       {"embedding", "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9", "b10", "b11", "head"})
    run.series[std::string("block_grad_norms/") + block] = {{1, 0.5}, {2, 0.75}};
  const std::string html = page(std::span(&run, 1));
  const std::size_t chart = html.find("Gradient norm of parameter blocks");
  ASSERT_NE(chart, std::string::npos);
  std::size_t last = chart;
  for (const char* block : {">embedding<", ">b1<", ">b4<", ">b6<", ">b9<", ">head<"}) {
    const std::size_t at = html.find(block, chart);
    ASSERT_NE(at, std::string::npos) << block;
    EXPECT_GT(at, last) << block;
    last = at;
  }
  EXPECT_EQ(html.find(">b2<", chart), std::string::npos);
}

TEST(Page, HasATableOfManyRunsWithTheSettingsTheyDifferIn) {
  std::vector<RunRecord> runs;
  for (int i = 0; i < 8; ++i) {
    RunRecord run = long_run("lr" + std::to_string(i), 20);
    run.config =
        config::parse_run_file(fmt::format("[model]\nvocab_size = 64\nhidden_size = 16\nintermediate_size = 32\n"
                                           "layers = 1\nheads = 2\n[data]\ntrain = \"x\"\nseq_len = 8\n[batch]\n"
                                           "global = 4\nmicro = 2\n[train]\nsteps = 20\n[optimizer]\nlr = {}e-4\n",
                                           i + 1),
                               "run.toml");
    run.series["eval_loss"] = {{20, i == 5 ? 1.0 : 2.0 + i}};
    runs.push_back(std::move(run));
  }
  const std::string html = page(runs);
  EXPECT_THAT(html, HasSubstr("<h1>8 runs</h1>"));
  EXPECT_THAT(html, HasSubstr("<th class=\"n\">optimizer.lr</th></tr>")) << "the only setting that differs";
  EXPECT_LT(html.find(">lr5<"), html.find(">lr0<")) << "the lowest validation loss first";
  EXPECT_THAT(html, HasSubstr("<td class=\"n\">0.0006</td></tr>"));
  EXPECT_THAT(unbalanced(html), ElementsAre());
  EXPECT_THAT(page(std::span(runs).first(2)),
              testing::AllOf(HasSubstr("<tr class=\"equal\"><th>steps</th>"), HasSubstr("<tr><th>learning rate</th>")));
}

TEST(Page, ReloadsWhileARunIsWatched) {
  const RunRecord run = run_of("one", 3, 5.0);
  EXPECT_THAT(page(std::span(&run, 1), 7),
              testing::AllOf(HasSubstr("http-equiv=\"refresh\" content=\"7\""), HasSubstr("reloads every 7 s")));
  EXPECT_THAT(page(std::span(&run, 1)), Not(HasSubstr("refresh")));
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

// SPDX-License-Identifier: Apache-2.0
#include "train/record/curves.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace trireme::train::curves_test {
namespace {

using nlohmann::json;

/// Every number is another one than zero and than all others.
StepRow sample_row() {
  StepRow row{.step = 3,
              .loss = 2.5,
              .grad_norm = 1.0 / 3,
              .spike_score = 1.25,
              .block_grad_norms = {{"embedding", 0.2}, {"b0", 0.1}},
              .z_loss = 0.03,
              .balance_loss = 0.04,
              .router_z_loss = 0.05,
              .expert_load = ExpertLoad{.max = 1.5, .layer = 3, .tokens = {6, 2, 4}},
              .lr = 3e-4,
              .tokens = std::int64_t{1} << 40,
              .target_tokens = 4095,
              .step_seconds = 0.5,
              .data_seconds = 0.01,
              .exposed_comm_seconds = 0.02,
              .tokens_per_second = 8192,
              .tokens_per_second_per_rank = 2048,
              .mfu = 0.4,
              .gemm = "onednn",
              .restart_count = 2,
              .goodput = 0.875,
              .slowest_node_ratio = 1.125,
              .skipped_steps = 1};
  std::int64_t bytes = 1000;
  for (device::SpaceUse& space : row.memory.spaces) {
    for (const device::Category category : device::all_categories()) space.peak[category] = {++bytes};
    space.peak_total = {++bytes};
  }
  row.rss.peak = {++bytes};
  row.traffic["shard"]["all_gather"] = {.bytes = {96}, .calls = 4};
  row.traffic["host"]["offload"] = {.bytes = {97}, .calls = 1};
  return row;
}

template <class Row>
std::map<std::string, double> points(const Row& row) {
  std::map<std::string, double> by_tag;
  for (const Scalar& scalar : curves(row))
    EXPECT_TRUE(by_tag.emplace(scalar.tag, scalar.value).second) << scalar.tag << " twice";
  return by_tag;
}

/// TensorBoard tag of a number of metrics.jsonl, according to docs/outputs.md.
std::string tag_of(const std::string& key) {
  static const std::map<std::string, std::string> tags = {
      {"/loss", "loss/train"},
      {"/z_loss", "loss/z_loss"},
      {"/balance_loss", "loss/balance"},
      {"/router_z_loss", "loss/router_z_loss"},
      {"/expert_load_max", "experts/load_max"},
      {"/eval_loss", "loss/validation"},
      {"/eval_seconds", "time/validation_seconds"},
      {"/grad_norm", "optim/grad_norm"},
      {"/spike_score", "optim/spike_score"},
      {"/lr", "optim/lr"},
      {"/tokens_per_second", "speed/tokens_per_second"},
      {"/tokens_per_second_per_rank", "speed/tokens_per_second_per_rank"},
      {"/mfu", "speed/mfu"},
      {"/step_seconds", "time/step_seconds"},
      {"/data_seconds", "time/data_seconds"},
      {"/exposed_comm_seconds", "time/exposed_comm_seconds"},
      {"/epoch", "progress/epoch"},
      {"/tokens", "progress/tokens"},
      {"/target_tokens", "progress/target_tokens"},
      {"/skipped_steps", "progress/skipped_steps"},
      {"/slowest_node_ratio", "time/slowest_node_ratio"},
      {"/goodput", "progress/goodput"},
      {"/restart_count", "progress/restart_count"},
  };
  const auto found = tags.find(key);
  if (found != tags.end()) return found->second;
  for (const auto& [begin, group] : {std::pair<std::string, std::string>{"/memory_peak_bytes/", "memory/"},
                                     {"/comm_bytes/", "traffic/"},
                                     {"/block_grad_norms/", "optim/block_grad_norms/"}})
    if (key.starts_with(begin)) return group + key.substr(begin.size());
  return "";
}

/// No curve: what every event has anyhow, what is the same in all rows, and what is behind a largest load.
bool is_no_curve(const std::string& key) {
  return key == "/step" || key == "/time" || key == "/eval_tokens" || key.starts_with("/comm_calls/") ||
         key == "/expert_load_layer" || key.starts_with("/expert_tokens/");
}

template <class Row>
void expect_all_numbers(const Row& row) {
  const std::map<std::string, double> by_tag = points(row);
  std::set<std::string> tags;
  const json flat = json::parse(to_json(row)).flatten();
  for (const auto& [key, value] : flat.items()) {
    if (!value.is_number() || is_no_curve(key)) continue;
    const std::string tag = tag_of(key);
    ASSERT_TRUE(by_tag.contains(tag)) << key
                                      << " of metrics.jsonl: add it to src/train/record/curves.cpp, docs/outputs.md"
                                      << " and the table here, or here to what is no curve";
    EXPECT_EQ(by_tag.at(tag), value.template get<double>()) << tag;
    tags.insert(tag);
  }
  for (const auto& [tag, value] : by_tag) EXPECT_TRUE(tags.contains(tag)) << tag << " is not in metrics.jsonl";
}

TEST(Curves, HaveEveryNumberOfALineOfMetrics) {
  expect_all_numbers(sample_row());
  expect_all_numbers(EvalRow{.step = 10, .eval_loss = 2.25, .eval_tokens = 640, .eval_seconds = 0.75});
}

TEST(Curves, LeaveOutWhatIsNotKnownOrNotUsed) {
  StepRow row = sample_row();
  row.mfu.reset();
  device::SpaceUse& host = row.memory.spaces[static_cast<std::size_t>(device::Space::host)];
  host.peak[device::Category::optimizer] = {0};
  host.peak_total = {0};
  const std::map<std::string, double> by_tag = points(row);
  EXPECT_FALSE(by_tag.contains("speed/mfu"));
  EXPECT_FALSE(by_tag.contains("memory/host/optimizer"));
  EXPECT_TRUE(by_tag.contains("memory/device/optimizer"));
  EXPECT_EQ(by_tag.at("memory/host/total"), 0);
}

TEST(Curves, ShowALossThatIsNotFinite) {
  StepRow row = sample_row();
  row.loss = std::numeric_limits<double>::quiet_NaN();
  row.grad_norm = std::numeric_limits<double>::infinity();
  const std::map<std::string, double> by_tag = points(row);
  EXPECT_TRUE(std::isnan(by_tag.at("loss/train")));
  EXPECT_EQ(by_tag.at("optim/grad_norm"), std::numeric_limits<double>::infinity());
}

TEST(Curves, HaveNoPointForAMeanOverNoTarget) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto none = points(EvalRow{.step = 1, .eval_loss = nan, .eval_tokens = 0, .eval_losses = {{"a", nan}}});
  EXPECT_FALSE(none.contains("loss/validation") || none.contains("loss/validation/a"));
  const auto one = points(EvalRow{.step = 1, .eval_loss = 2, .eval_tokens = 8, .eval_losses = {{"a", nan}, {"b", 2}}});
  EXPECT_FALSE(one.contains("loss/validation/a"));
  EXPECT_TRUE(one.contains("loss/validation/b"));
  const auto broken = points(EvalRow{.step = 1, .eval_loss = nan, .eval_tokens = 8});
  EXPECT_TRUE(broken.contains("loss/validation")) << "TensorBoard marks a loss that is not finite";
}

}  // namespace
}  // namespace trireme::train::curves_test

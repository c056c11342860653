// SPDX-License-Identifier: Apache-2.0
#include "cli/init/from_lingua.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/init/yaml_blocks.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Json = nlohmann::json;

std::string yaml_refusal(const std::string& text) {
  try {
    (void)parse_yaml_blocks(text, "job.yaml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ParseYamlBlocks, ReadsWhatConfigurationsHold) {
  const Json read = parse_yaml_blocks(R"(# a run
---
name: "a # b"   # comment
steps: 60_000
optim:
    lr: 3e-3
    clip: 1.0
    schedule: wsd
none: null
empty:
flag: true
data:
  sources:
    web_1.0: 100.0
  tags: []
eval:
  tasks:
    - hellaswag
    - task: boolq
      args:
        trust: false
    - piqa
last: -5
)",
                                      "job.yaml");
  EXPECT_EQ(read,
            Json::parse(R"({"name": "a # b", "steps": 60000, "optim": {"lr": 0.003, "clip": 1.0, "schedule": "wsd"},
    "none": null, "empty": null, "flag": true, "data": {"sources": {"web_1.0": 100.0}, "tags": []},
    "eval": {"tasks": ["hellaswag", {"task": "boolq", "args": {"trust": false}}, "piqa"]}, "last": -5})"));
  EXPECT_EQ(parse_yaml_blocks("", "job.yaml"), Json::object());
}

TEST(ParseYamlBlocks, RefusesWhatItDoesNotRead) {
  EXPECT_THAT(yaml_refusal("a: [1, 2]"), HasSubstr("job.yaml, line 1: \"[1, 2]\" is not read here; convert the file"));
  EXPECT_THAT(yaml_refusal("a: &x 1"), HasSubstr("line 1"));
  EXPECT_THAT(yaml_refusal("a: |\n  text"), HasSubstr("line 1"));
  EXPECT_THAT(yaml_refusal("a: 1\n  b: 2"), HasSubstr("line 2: text of several lines"));
  EXPECT_THAT(yaml_refusal("a: 1\na: 2"), HasSubstr("line 2: the repeated key a"));
  EXPECT_THAT(yaml_refusal("  a: 1\nb: 2"), HasSubstr("line 2: the indentation fits no line before"));
  EXPECT_THAT(yaml_refusal("a:\n\tb: 2"), HasSubstr("line 2: a tab"));
  EXPECT_THAT(yaml_refusal("nothing"), HasSubstr("line 1"));
}

TEST(TranslateLingua, TranslatesAJob) {
  const TranslatedRun run = translate_lingua(Json::parse(R"({
    "name": "large", "steps": 60000, "seed": 777, "probe_freq": null, "grad_acc_steps": 2, "dump_dir": "out",
    "optim": {"lr": 3e-3, "weight_decay": 0.033, "warmup": 5000, "lr_min_ratio": 1e-6},
    "distributed": {"fsdp_type": "full_shard", "compile": true, "tp_size": 2},
    "model": {"dim": 2048, "n_layers": 25, "n_heads": 16},
    "data": {"batch_size": 4, "seq_len": 4096, "sources": {"dclm": 1.0},
             "tokenizer": {"name": "tiktoken", "path": "t.tiktoken"}},
    "checkpoint": {"dump": {"every": 2500, "keep": 3}, "eval": {"every": 5000, "keep": -1}},
    "future": {"field": 1}})"),
                                             "job.yaml", 8, true);
  const config::RunConfig& config = run.config;
  EXPECT_EQ(config.model.hidden_size, 2048);
  EXPECT_EQ(config.model.intermediate_size, 5632) << "256 ceil(5461 / 256)";
  EXPECT_EQ(config.model.kv_heads, 16);
  EXPECT_EQ(config.model.init_std, 1 / std::sqrt(2048.0));
  EXPECT_EQ(config.mesh.tensor, 2);
  EXPECT_EQ(config.mesh.shard, 4) << "full_shard with dp_shard = 1 shards over all ranks";
  EXPECT_EQ(config.mesh.replicate, 1);
  EXPECT_EQ(config.sync.policy, config::SyncPolicy::deferred);
  EXPECT_EQ(config.batch.micro, 4);
  EXPECT_EQ(config.batch.global, 4 * 2 * 4);
  EXPECT_EQ(config.optimizer.lr, 3e-3);
  EXPECT_TRUE(config.optimizer.no_decay.empty());
  EXPECT_EQ(config.lr.schedule, config::LrSchedule::cosine);
  EXPECT_EQ(config.lr.warmup_steps, 5000);
  EXPECT_EQ(config.memory.recompute, config::Recompute::none);
  EXPECT_EQ(config.checkpoint.every, 2500);
  EXPECT_EQ(config.checkpoint.keep, 3);
  EXPECT_EQ(config.train.eval_every, 5000);
  EXPECT_EQ(config.run.seed, 777U);
  EXPECT_EQ(config.run.output, "out");
  EXPECT_THAT(run.differences, Contains(HasSubstr("optim.warmup: step n of the warm-up")));
  EXPECT_THAT(run.differences, Contains(HasSubstr("data.tokenizer.name: tiktoken")));
  EXPECT_THAT(run.without_counterpart,
              testing::UnorderedElementsAre(HasSubstr("name = \"large\""), HasSubstr("probe_freq = null"),
                                            HasSubstr("distributed.compile = true"), HasSubstr("data.sources.dclm = 1"),
                                            HasSubstr("checkpoint.eval.keep = -1"), HasSubstr("future.field = 1")));
}

TEST(TranslateLingua, RefusesWhatHasNoCounterpart) {
  const auto refusal = [](const std::string& json) {
    try {
      (void)translate_lingua(Json::parse(json), "job.yaml", 8, true);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(R"({"model": {"n_heads": 8}, "optim": {"scheduler": "inv_sqrt"}})"),
              HasSubstr("optim.scheduler: inv_sqrt has no counterpart"));
  EXPECT_THAT(refusal(R"({"model": {"n_heads": 8}, "distributed": {"dp_shard": 3}})"),
              HasSubstr("dp_shard x tp_size = 3 does not divide --ranks 8"));
  EXPECT_THAT(refusal("{}"), HasSubstr("n_heads or head_dim must be positive"));
}

}  // namespace
}  // namespace trireme::cli

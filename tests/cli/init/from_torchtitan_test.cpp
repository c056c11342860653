// SPDX-License-Identifier: Apache-2.0
#include "cli/init/from_torchtitan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/config/load.hpp"

namespace trireme::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Json = nlohmann::json;

TranslatedRun translated(const std::string& json, int ranks = 8, bool with_model = true) {
  return translate_torchtitan(Json::parse(json), "job.toml", ranks, with_model);
}

std::string refusal(const std::string& json, int ranks = 8) {
  try {
    (void)translated(json, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TranslateTorchtitan, WritesTheDefaultsThatDiffer) {
  const TranslatedRun run = translated("{}");
  const config::RunConfig& config = run.config;
  EXPECT_EQ(config.data.seq_len, 2048);
  EXPECT_EQ(config.batch.micro, 8);
  EXPECT_EQ(config.batch.global, 64);
  EXPECT_EQ(config.train.steps, 10000);
  EXPECT_EQ(config.lr.schedule, config::LrSchedule::linear);
  EXPECT_EQ(config.lr.min_ratio, 0);
  EXPECT_EQ(config.lr.warmup_steps, 200);
  EXPECT_EQ(config.optimizer.lr, 8e-4);
  EXPECT_EQ(config.optimizer.beta2, 0.95);
  EXPECT_EQ(config.optimizer.clip_norm, 1);
  EXPECT_TRUE(config.optimizer.no_decay.empty());
  EXPECT_EQ(config.model.init, config::Init::depth_scaled);
  EXPECT_EQ(config.checkpoint.every, 0);
  EXPECT_FALSE(config.checkpoint.at_end);
  EXPECT_EQ(run.reasons.at("optimizer.lr"), "TorchTitan's default of optimizer.lr");
  EXPECT_THAT(run.reasons.at("optimizer.no_decay"), HasSubstr("decays all parameters"));
  EXPECT_THAT(run.differences, Contains(HasSubstr("embeddings have std 1")));
  EXPECT_TRUE(run.without_counterpart.empty());
}

TEST(TranslateTorchtitan, TranslatesAJobOf2025) {
  const TranslatedRun run = translated(R"({
    "job": {"dump_folder": "out", "description": "a run"},
    "model": {"name": "llama3", "flavor": "8B", "hf_assets_path": "assets", "converters": ["float8"]},
    "optimizer": {"name": "AdamW", "lr": 3e-4, "eps": 1e-7, "implementation": "foreach"},
    "lr_scheduler": {"warmup_steps": 100, "decay_ratio": 0.2, "min_lr_factor": 0.1},
    "training": {"local_batch_size": 1, "global_batch_size": 32, "seq_len": 8192, "max_norm": 0.5, "steps": 1000,
                 "dataset": "c4", "seed": 7},
    "parallelism": {"data_parallel_replicate_degree": 2, "tensor_parallel_degree": 2,
                    "fsdp_reshard_after_forward": "never", "enable_async_tensor_parallel": true},
    "activation_checkpoint": {"mode": "selective", "selective_ac_option": "2"},
    "quantize": {"linear": {"float8": {"recipe_name": "rowwise", "filter_fqns": ["attention.wq", "output"]}}},
    "checkpoint": {"enable": true, "interval": 250, "keep_latest_k": 0, "async_mode": "async", "last_save_in_hf": true},
    "validation": {"enable": true, "freq": 50, "steps": 16, "local_batch_size": 2},
    "compile": {"enable": true},
    "new_section": {"field": [1, 2]}})");
  const config::RunConfig& config = run.config;
  EXPECT_EQ(config.model.hidden_size, 4096);
  EXPECT_EQ(config.model.intermediate_size, 14336);
  EXPECT_TRUE(config.model.rope_scaling.has_value());
  EXPECT_EQ(config.run.output, "out");
  EXPECT_EQ(config.run.seed, 7U);
  EXPECT_EQ(config.checkpoint.directory, "out/checkpoint");
  EXPECT_EQ(config.checkpoint.every, 250);
  EXPECT_EQ(config.checkpoint.keep, 1 << 20);
  EXPECT_TRUE(config.checkpoint.async);
  EXPECT_EQ(config.run.export_when, config::Export::end);
  EXPECT_EQ(config.optimizer.eps, 1e-7);
  EXPECT_EQ(config.optimizer.clip_norm, 0.5);
  EXPECT_EQ(config.lr.schedule, config::LrSchedule::wsd);
  EXPECT_EQ(config.lr.wsd_decay_steps, 200);
  EXPECT_EQ(config.lr.min_ratio, 0.1);
  EXPECT_EQ(config.batch.micro, 1);
  EXPECT_EQ(config.batch.global, 32);
  EXPECT_EQ(config.mesh.replicate, 2);
  EXPECT_EQ(config.mesh.tensor, 2);
  EXPECT_EQ(config.sync.reshard_after_forward, 1);
  EXPECT_EQ(config.memory.recompute, config::Recompute::block);
  EXPECT_EQ(config.memory.recompute_every, 2);
  EXPECT_EQ(config.precision.fp8, Fp8::rowwise);
  EXPECT_THAT(config.precision.fp8_skip, testing::ElementsAre("*self_attn.q_proj*"));
  EXPECT_TRUE(run.validates);
  EXPECT_EQ(config.train.eval_every, 50);
  EXPECT_EQ(config.train.eval_steps, 16 * 2 * 4 / 32) << "4 data-parallel ranks";
  EXPECT_EQ(run.assets, "assets");
  EXPECT_THAT(run.without_counterpart,
              testing::UnorderedElementsAre(
                  HasSubstr("job.description = \"a run\": free text"), HasSubstr("optimizer.implementation = "),
                  HasSubstr("training.dataset = \"c4\": --data"),
                  HasSubstr("parallelism.enable_async_tensor_parallel = true: exchanges overlap"),
                  HasSubstr("compile.enable = true: kernels"), HasSubstr("new_section.field = ")));
}

TEST(TranslateTorchtitan, TranslatesADumpOf2026) {
  const TranslatedRun run = translated(R"({
    "model_spec": {"name": "qwen3", "flavor": "0.6B", "model": {"dim": 1024, "vocab_size": 151936}},
    "hf_assets_path": "./assets", "dump_folder": "./outputs",
    "optimizer": {"param_groups": [
        {"pattern": "norm", "optimizer_name": "AdamW", "optimizer_kwargs": {"lr": 1e-3}},
        {"pattern": ".*", "optimizer_name": "AdamW",
         "optimizer_kwargs": {"lr": 5e-4, "betas": [0.9, 0.99], "eps": 1e-9, "weight_decay": 0.2}}]},
    "lr_scheduler": {"warmup_steps": 10, "total_steps": 400, "decay_ratio": null, "decay_type": "cosine"},
    "training": {"num_tokens_per_microbatch_per_dp_rank": 8192, "num_tokens_per_train_step": 131072,
                 "max_context_length": 4096, "steps": 300},
    "activation_checkpoint": null, "checkpoint": {"enable": false, "folder": "c"}})");
  const config::RunConfig& config = run.config;
  EXPECT_EQ(config.model.architecture, "qwen3");
  EXPECT_EQ(config.model.head_dim, 128);
  EXPECT_TRUE(config.model.tie_embeddings);
  EXPECT_EQ(config.optimizer.lr, 5e-4);
  EXPECT_EQ(config.optimizer.beta2, 0.99);
  EXPECT_EQ(config.optimizer.weight_decay, 0.2);
  EXPECT_EQ(config.batch.micro, 2);
  EXPECT_EQ(config.batch.global, 32);
  EXPECT_EQ(config.data.seq_len, 4096);
  EXPECT_EQ(config.lr.schedule, config::LrSchedule::cosine);
  EXPECT_EQ(config.lr.end_step, 400);
  EXPECT_EQ(config.memory.recompute, config::Recompute::none);
  EXPECT_THAT(run.differences, Contains(HasSubstr("the group {")));
}

TEST(TranslateTorchtitan, RefusesWhatWouldTrainAnotherModel) {
  EXPECT_THAT(refusal(R"({"model": {"name": "deepseek_v3", "flavor": "16B"}})"),
              HasSubstr("model.name: deepseek_v3 16B is not known here; known are llama3 debugmodel"));
  EXPECT_THAT(refusal(R"({"optimizer": {"name": "Adam"}})"), HasSubstr("Adam with weight_decay has no counterpart"));
  EXPECT_THAT(refusal(R"({"model_spec": {"name": "llama3", "flavor": "8B", "model": {"dim": 1024}}})"),
              HasSubstr("model_spec.model.dim: is 1024, but 4096 in the flavor"));
  EXPECT_THAT(refusal(R"({"training": {"steps": "many"}})"), HasSubstr("training.steps: \"many\" is not an integer"));
  EXPECT_THAT(refusal(R"({"parallelism": {"tensor_parallel_degree": 3}})"),
              HasSubstr("the degrees need a multiple of 3 ranks, but --ranks is 8"));
  EXPECT_THAT(refusal(R"({"training": {"num_tokens_per_microbatch_per_dp_rank": 3000, "max_context_length": 2048}})"),
              HasSubstr("not whole sequences of 2048 tokens"));
}

TEST(TranslateTorchtitan, TakesAnotherModelByItsOwnFlag) {
  const TranslatedRun run = translated(R"({"model": {"name": "gpt_oss", "flavor": "20b"}})", 8, false);
  EXPECT_EQ(run.config.model.hidden_size, 0);
  EXPECT_TRUE(run.without_counterpart.empty());
}

TEST(TranslateTorchtitan, HasTheirLearningRateAtEveryStep) {
  // torchtitan/components/lr_scheduler.py: w warm-up steps, d steps of decay, w + stable = T + 1 - d.
  const TranslatedRun run =
      translated(R"({"training": {"steps": 100}, "lr_scheduler": {"warmup_steps": 10, "decay_ratio": 0.3}})");
  EXPECT_EQ(run.config.lr.wsd_decay_steps, 30);
  EXPECT_EQ(run.config.lr.warmup_steps, 10);
  EXPECT_FALSE(run.config.lr.end_step.has_value());
}

}  // namespace
}  // namespace trireme::cli

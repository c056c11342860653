// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/sample_run.hpp"
#include "config/toml.hpp"
#include "trireme/config/options.hpp"

namespace trireme::config {
namespace {

using testing::HasSubstr;

/// A configuration in which nothing has its default, features of later versions included.
RunConfig everything_set() {
  RunConfig c;
  c.run = {.name = "na me",
           .output = "out/${x}\"\\",
           .seed = 7,
           .deterministic = true,
           .overwrite = true,
           .export_when = Export::end};
  c.model = {
      .architecture = "other",
      .vocab_size = 320,
      .hidden_size = 64,
      .intermediate_size = 96,
      .layers = 3,
      .heads = 8,
      .kv_heads = 4,
      .head_dim = 10,
      .positions = 50,
      .norm_eps = 1.1e-6,
      .rope_theta = 500000.0,
      .rope_scaling =
          RopeScaling{
              .factor = 32, .low_freq_factor = 1.5, .high_freq_factor = 4.5, .original_max_position_embeddings = 4096},
      .attention_bias = true,
      .mlp_bias = true,
      .qk_norm = true,
      .sliding_window = 7,
      .layer_types = {full_attention, sliding_attention},
      .no_rope_interval = 3,
      .rope_local_theta = 3e4,
      .partial_rotary_factor = 0.5,
      .query_pre_attn_scalar = 144,
      .attention_multiplier = 0.015625,
      .attn_logit_softcapping = 50,
      .final_logit_softcapping = 30,
      .q_rank = 24,
      .kv_rank = 20,
      .nope_dim = 6,
      .rope_dim = 4,
      .value_dim = 7,
      .rope_interleave = false,
      .embedding_multiplier = 12,
      .residual_multiplier = 0.22,
      .logits_scaling = 8,
      .experts = 8,
      .experts_per_token = 2,
      .expert_size = 96,
      .dense_layers = 1,
      .router_normalize = false,
      .router_scale = 2.5,
      .router_groups = 4,
      .router_groups_kept = 2,
      .shared_size = 192,
      .tie_embeddings = true,
      .init = Init::depth_scaled,
      .init_std = 0.1,
      .from = "weights"};
  c.data = {.train = {{"a.bin", 0.3}, {"b \u00e9.bin", 2}},
            .weighted = true,
            .validation = {{"v.bin"}, {"w.bin"}},
            .choices = {{"q.jsonl"}},
            .format = TokenFormat::uint32,
            .seq_len = 33,
            .shuffle = false,
            .seed = 9,
            .ignore_targets = {0, 256},
            .document_end = 256,
            .document_mask = true,
            .packing = Packing::best_fit,
            .tokenizer = "spm:m.model",
            .check_tokenizer = false,
            .skip_to = 12,
            .prefetch_batches = 3};
  c.mesh = {.replicate = 2,
            .shard = 4,
            .tensor = 2,
            .sequence_parallel = true,
            .context = 2,
            .pipeline = 2,
            .expert = 2,
            .expert_room = 1.5};
  c.context = {.method = ContextMethod::heads};
  c.pipeline = {.schedule = PipelineKind::zbv, .chunks = 2, .layers = {3, 4}};
  c.batch = {.global = 12, .micro = 3};
  c.sync = {.policy = SyncPolicy::automatic,
            .reshard_after_forward = 2,
            .reshard_after_backward = false,
            .prefetch_bytes = Bytes{1LL << 40}};
  c.precision = {.compute = DType::fp32,
                 .reduce = Reduce::bf16_wire,
                 .masters = Masters::split,
                 .moments = DType::bf16,
                 .fp8 = Fp8::tensorwise,
                 .fp8_skip = {"*down*"}};
  c.memory = {.recompute = Recompute::block,
              .recompute_every = 2,
              .activation_offload = true,
              .activation_offload_min_bytes = Bytes{5},
              .activation_offload_in_flight = 4,
              .offload = Offload::parameters,
              .offload_fraction = 1.0 / 3,
              .budget = Bytes{77}};
  c.loss = {
      .z_loss = 1e-4, .balance_loss = 1e-5, .router_z_loss = 1e-3, .balance_bias_rate = 1e-2, .chunk_tokens = 128};
  c.optimizer = {.name = OptimizerName::muon,
                 .lr = 6e-4,
                 .beta1 = 0.1,
                 .beta2 = 0.2,
                 .eps = 1e-20,
                 .weight_decay = 0.3,
                 .no_decay = {"*a*", "\"b\""},
                 .clip_norm = 1e22,
                 .groups = {{.names = {"*q*"}, .lr = 0.5, .weight_decay = 0.25}, {.names = {"*k*"}, .lr = 3}},
                 .momentum = 0.9,
                 .nesterov = false,
                 .scale = MuonScale::spectral,
                 .newton_schulz = NewtonSchulz::polar_express,
                 .newton_schulz_precision = NewtonSchulzPrecision::bf16,
                 .adamw = {"*router*"},
                 .window_bytes = Bytes{1 << 20}};
  c.lr = {.schedule = LrSchedule::wsd,
          .warmup_steps = 5,
          .end_step = 90,
          .wsd_decay_steps = 6,
          .warmup_tokens = 1980,
          .end_tokens = 35640,
          .wsd_decay_tokens = 2376,
          .min_ratio = 0.0};
  c.train = {.steps = 100,
             .tokens = 39600,
             .eval_every = 1,
             .eval_steps = 2,
             .choices_every = 5,
             .choices_limit = 6,
             .max_skipped_steps = 3,
             .skip_spikes = true,
             .replica_check_every = 4,
             .stop_before_limit_seconds = 5.5};
  c.checkpoint = {.directory = "ck",
                  .every = 1,
                  .at_end = false,
                  .keep = 3,
                  .keep_every = 4,
                  .keep_best = "web",
                  .async = false,
                  .ranks_per_file = 5,
                  .resume = "step-00000100",
                  .data = DataOnResume::restart};
  c.metrics = {.every = 2,
               .block_norms = true,
               .trace_steps = {3, 4},
               .memory_snapshot = true,
               .tensorboard = true,
               .report = true,
               .peak_flops = 1e12};
  c.device = {.type = DeviceType::cuda, .threads = 3, .cuda_graphs = true};
  c.comm = {.backend = Backend::nccl,
            .timeout_seconds = 1.5,
            .lane_threads = false,
            .nccl_max_ctas = 8,
            .nccl_windows = true,
            .nccl_copy_engines = true};
  return c;
}

TEST(PrintRunFile, LeavesNoOptionAtItsDefaultUnprinted) {
  const RunConfig config = everything_set();
  for (const Option& option : options()) {
    EXPECT_TRUE(option.print(config).has_value()) << option.name();
    EXPECT_NE(option.print(config), option.print(RunConfig{})) << option.name() << " needs another value in this test";
  }
}

TEST(PrintRunFile, ReadsBackToTheSameValuesForEveryOption) {
  const RunConfig config = everything_set();
  RunConfig again;
  for (const Field& section : read_toml(print_run_file(config), "printed")) {
    for (const Field& field : std::get<Fields>(section.value.data)) {
      const Option* option = find_option(section.key, field.key);
      ASSERT_NE(option, nullptr) << section.key << "." << field.key;
      EXPECT_EQ(option->read(field.value, again), std::nullopt) << option->name();
    }
  }
  EXPECT_EQ(print_run_file(again), print_run_file(config));
  EXPECT_EQ(again.run.output, config.run.output);
  EXPECT_EQ(again.model.rope_scaling, config.model.rope_scaling);
  EXPECT_EQ(again.data.train.at(1).path, config.data.train.at(1).path);
  EXPECT_EQ(again.data.train.at(0).weight, 0.3);
  EXPECT_EQ(again.memory.offload_fraction, 1.0 / 3);
  EXPECT_EQ(again.optimizer.no_decay, config.optimizer.no_decay);
}

TEST(PrintRunFile, ParsesToItselfForRunsOfThisVersion) {
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{},
        {"model.from=weights", "sync.reshard_after_forward=false", "data.validation=[\"v\"]"},
        {"sync.policy=deferred", "sync.prefetch_bytes=1MiB", "data.train=[{path=\"a\",weight=2}]"}}) {
    const std::string printed = print_run_file(with(overrides));
    EXPECT_EQ(print_run_file(parse(printed)), printed);
  }
  const std::string sizeless =
      print_run_file(parse("[data]\ntrain=\"a\"\nseq_len=8\n[batch]\nglobal=1\nmicro=1\n"
                           "[train]\nsteps=1\n[model]\nfrom=\"w\"\n"));
  EXPECT_EQ(print_run_file(parse(sizeless)), sizeless);
}

TEST(Set, GivesWhatPrintingAndParsingWithTheOverridesGives) {
  const RunConfig base = with({"mesh.tensor=2", "data.validation=[\"v\"]", "run.output=a$${b"});
  for (const std::vector<std::string>& overrides : {std::vector<std::string>{},
                                                    {"batch.micro=2", "memory.recompute=block"},
                                                    {"sync.policy=deferred", "sync.reshard_after_forward=false"},
                                                    {"mesh.tensor=4", "mesh.sequence_parallel=false", "lr.end_step=7"}})
    EXPECT_EQ(print_run_file(set(base, overrides)),
              print_run_file(parse_run_file(print_run_file(base), "x", overrides)));
  EXPECT_EQ(base.mesh.tensor, 2);
}

TEST(Set, RefusesWhatARunFileMayNotHold) {
  const RunConfig base = with({});
  for (const char* wrong : {"batch.micro=0", "batch.mikro=1", "mesh.tensor=0", "memory.recompute=all"}) {
    EXPECT_THROW((void)parse_run_file(print_run_file(base), "x", {wrong}), ConfigError) << wrong;
    EXPECT_THROW((void)set(base, {wrong}), ConfigError) << wrong;
  }
}

TEST(Differences, AreTheOptionsWhoseValuesDiffer) {
  const RunConfig base = with({});
  EXPECT_TRUE(differences(base, base).empty());
  EXPECT_TRUE(differences(base, read_effective(print_run_file(base))).empty());
  const auto found = differences(base, set(base, {"batch.micro=4", "metrics.trace_steps=[5]"}));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].section + "." + found[0].key, "batch.micro");
  EXPECT_EQ(found[0].before, print(base.batch.micro));
  EXPECT_EQ(found[0].after, "4");
  EXPECT_EQ(found[1].key, "trace_steps");
  EXPECT_EQ(differences(RunConfig{}, everything_set()).size(), options().size());
}

TEST(PrintRunFile, ExplainsEachKey) {
  EXPECT_THAT(print_run_file(with({})), HasSubstr("# AdamW (Loshchilov and Hutter 2019)"));
}

}  // namespace
}  // namespace trireme::config

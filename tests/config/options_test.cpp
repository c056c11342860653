// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "config/sample_run.hpp"

namespace trireme::config {
namespace {

using testing::HasSubstr;

TEST(Options, HaveUniqueNamesAndAMeaning) {
  std::set<std::string> names;
  for (const Option& option : options()) {
    EXPECT_TRUE(names.insert(option.name()).second) << option.name();
    EXPECT_FALSE(option.meaning.empty()) << option.name();
    EXPECT_FALSE(option.type.empty()) << option.name();
  }
  EXPECT_EQ(section_names().size(), 18U);
}

// The keys that the design promises.
const std::vector<std::pair<std::string, std::vector<std::string>>> promised = {
    {"run", {"name", "output", "seed", "deterministic", "overwrite", "export"}},
    {"model", {"architecture", "vocab_size",     "hidden_size", "intermediate_size", "layers",
               "heads",        "kv_heads",       "head_dim",    "norm_eps",          "rope_theta",
               "rope_scaling", "tie_embeddings", "init",        "init_std",          "from",
               "layer_types",  "attention_bias", "mlp_bias",    "sliding_window",    "final_logit_softcapping"}},
    {"data",
     {"train", "validation", "format", "seq_len", "shuffle", "seed", "ignore_targets", "document_end", "document_mask",
      "tokenizer", "check_tokenizer", "skip_to", "prefetch_batches"}},
    {"mesh", {"replicate", "shard", "tensor", "sequence_parallel", "context", "pipeline"}},
    {"context", {"method"}},
    {"pipeline", {"schedule", "chunks", "layers"}},
    {"batch", {"global", "micro"}},
    {"sync", {"policy", "reshard_after_forward", "reshard_after_backward", "prefetch_bytes"}},
    {"precision", {"compute", "reduce", "masters", "moments", "fp8", "fp8_skip"}},
    {"memory",
     {"recompute", "recompute_every", "activation_offload", "activation_offload_min_bytes",
      "activation_offload_in_flight", "offload", "offload_fraction", "budget"}},
    {"loss", {"z_loss", "chunk_tokens"}},
    {"optimizer", {"name", "lr", "beta1", "beta2", "eps", "weight_decay", "no_decay", "clip_norm"}},
    {"lr", {"schedule", "warmup_steps", "end_step", "wsd_decay_steps", "min_ratio"}},
    {"train",
     {"steps", "eval_every", "eval_steps", "max_skipped_steps", "replica_check_every", "stop_before_limit_seconds"}},
    {"checkpoint", {"directory", "every", "at_end", "keep", "keep_every", "async", "ranks_per_file", "resume", "data"}},
    {"metrics", {"every", "trace_steps", "memory_snapshot", "tensorboard", "report", "peak_flops"}},
    {"device", {"type", "threads", "cuda_graphs"}},
    {"comm", {"backend", "timeout_seconds", "lane_threads", "nccl_max_ctas", "nccl_windows", "nccl_copy_engines"}},
};

TEST(ExplainOptions, ShowsEveryPromisedKeyOnALineOfItsOwn) {
  const std::string text = "\n" + explain_options();
  for (const auto& [section, keys] : promised)
    for (const std::string& key : keys) EXPECT_THAT(text, HasSubstr("\n" + section + "." + key + " "));
}

TEST(OptionsReference, IsWhatTheDocumentationSays) {
  const std::string path = TRIREME_SOURCE_DIR "/docs/run-file.md";
  if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << options_reference();
  std::ifstream file(path);
  EXPECT_EQ(options_reference(), std::string(std::istreambuf_iterator<char>(file), {}))
      << "run config_tests with TRIREME_UPDATE_GOLDENS=1 and look at the diff";
}

TEST(ExplainOptions, ShowsTypeDefaultAndAvailability) {
  const std::string text = explain_options();
  EXPECT_THAT(text, HasSubstr("true | false"));
  EXPECT_THAT(text, HasSubstr("hidden_size / heads"));
  EXPECT_THAT(text, HasSubstr("[not yet available]"));
}

TEST(KeysOfLaterFeatures, AreTakenAtTheirDefaultAndRefusedOtherwise) {
  const std::vector<std::pair<std::string, std::string>> at_default_and_not = {
      {"precision.moments=fp32", "precision.moments=bf16"},
  };
  for (const auto& [fine, later] : at_default_and_not) {
    EXPECT_EQ(mistakes_with({fine}), "") << fine;
    EXPECT_THAT(mistakes_with({later}), HasSubstr("not yet available")) << later;
  }
}

}  // namespace
}  // namespace trireme::config

// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/sample_run.hpp"
#include "trireme/config/options.hpp"

namespace trireme::config {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Rules, LookAtKeysThatExist) {
  for (const Rule& rule : rules()) {
    for (const std::string& key : rule.keys) {
      const auto dot = key.find('.');
      EXPECT_NE(find_option(key.substr(0, dot), key.substr(dot + 1)), nullptr) << key;
    }
  }
}

TEST(Rules, HeadsDivideTheHiddenSizeUnlessHeadDimIsGiven) {
  EXPECT_THAT(mistakes_with({"model.heads=5"}),
              HasSubstr("5 heads do not divide hidden_size 64; set model.head_dim, or 4 or 8 heads"));
  EXPECT_EQ(with({"model.heads=5", "model.head_dim=16"}).model.head_dim, 16);
}

TEST(Rules, KvHeadsDivideHeads) {
  EXPECT_THAT(mistakes_with({"model.kv_heads=3"}), HasSubstr("3 kv_heads do not divide 4 heads; set 2 or 4"));
  EXPECT_THAT(mistakes_with({"model.kv_heads=8"}), HasSubstr("set 4"));
  EXPECT_EQ(with({"model.kv_heads=2"}).model.kv_heads, 2);
}

TEST(Rules, SplitMastersHaveABf16Half) {
  EXPECT_THAT(
      mistakes_with({"precision.masters=split", "precision.compute=fp32"}),
      HasSubstr("requires precision.compute = \"bf16\", found \"fp32\"; set it, or precision.masters = \"fp32\""));
  EXPECT_EQ(mistakes_with({"precision.masters=split", "precision.compute=bf16"}), "");
}

TEST(Rules, KeysOfMuonHaveAnEffect) {
  EXPECT_EQ(with({"optimizer.name=muon", "optimizer.momentum=0.9", "optimizer.scale=jordan"}).optimizer.momentum, 0.9);
  for (const char* key : {"momentum=0.9", "nesterov=false", "scale=jordan", "newton_schulz=polar_express",
                          "newton_schulz_precision=fp32", "adamw=[\"*router*\"]", "window_bytes=1MiB"}) {
    EXPECT_THAT(mistakes_with({std::string("optimizer.") + key}),
                HasSubstr("has no effect with optimizer.name = \"adamw\"; remove it, or set optimizer.name = \"muon\""))
        << key;
    EXPECT_EQ(mistakes_with({"optimizer.name=muon", std::string("optimizer.") + key}), "") << key;
  }
}

TEST(Rules, MuonKeepsItsMomentumInFp32) {
  EXPECT_THAT(mistakes_with({"optimizer.name=muon", "precision.moments=bf16"}),
              HasSubstr("keeps its momentum in fp32"));
  EXPECT_THAT(mistakes_with({"optimizer.name=lion"}), HasSubstr("expected one of adamw | muon"));
}

TEST(Rules, TokenIdsAreInTheVocabulary) {
  EXPECT_THAT(mistakes_with({"data.ignore_targets=[0, 320]"}),
              HasSubstr("token id 320 is beyond model.vocab_size 320"));
  EXPECT_THAT(mistakes_with({"data.document_end=320"}), HasSubstr("ids go from 0 to 319"));
  EXPECT_EQ(mistakes_with({"data.document_mask=true"}), "") << "a sidecar or an index may have the documents";
  EXPECT_TRUE(with({"data.packing=best_fit"}).data.document_mask);
  EXPECT_EQ(mistakes_with({"data.packing=best_fit", "data.document_mask=true"}), "");
  EXPECT_THAT(mistakes_with({"data.packing=best_fit", "data.document_mask=false"}),
              HasSubstr("false contradicts data.packing = \"best_fit\""));
  EXPECT_EQ(with({"data.document_end=319"}).data.document_end, 319);
  EXPECT_THAT(mistakes_with({"data.format=uint16", "model.vocab_size=65537"}), HasSubstr("uint32"));
  EXPECT_EQ(mistakes_with({"data.format=uint16", "model.vocab_size=65536"}), "");
}

TEST(Rules, Fp8ProductsRoundBf16) {
  EXPECT_EQ(with({"precision.fp8=mx"}).precision.fp8, Fp8::mx);
  EXPECT_THAT(mistakes_with({"precision.fp8=rowwise", "precision.compute=fp32"}),
              HasSubstr("fp8 = \"rowwise\" requires precision.compute = \"bf16\", found \"fp32\""));
  EXPECT_THAT(mistakes_with({"precision.fp8=e4m3"}), HasSubstr("expected one of none | rowwise | mx | tensorwise"));
  EXPECT_THAT(mistakes_with({"precision.fp8_skip=[\"*down*\"]"}), HasSubstr("fp8_skip has no effect"));
  EXPECT_EQ(with({"precision.fp8=rowwise", "precision.fp8_skip=[\"*down*\"]"}).precision.fp8_skip.front(), "*down*");
}

TEST(Rules, LossesOfRoutersHaveExperts) {
  const std::vector<std::string> losses = {"loss.balance_loss=0.5", "loss.router_z_loss=0.25"};
  const auto with_losses = [&](std::vector<std::string> keys) {
    keys.insert(keys.end(), losses.begin(), losses.end());
    return mistakes_with(keys);
  };
  const std::string found = with_losses({});
  EXPECT_THAT(found, HasSubstr("balance_loss = 0.5 has no effect on a model without experts"));
  EXPECT_THAT(found, HasSubstr("router_z_loss = 0.25 has no effect on a model without experts"));
  EXPECT_EQ(with_losses({"model.architecture=mixtral", "model.experts=4", "model.experts_per_token=2"}), "");
  const std::vector<std::string> dense = {"model.architecture=qwen3_moe", "model.experts=4",
                                          "model.experts_per_token=2", "model.dense_layers=2"};
  EXPECT_THAT(with_losses(dense), HasSubstr("balance_loss = 0.5 has no effect"));
  EXPECT_EQ(with_losses({"model.from=weights"}), "") << "known when the weights are read";
  RunConfig config = with({"model.from=weights", losses[0], losses[1]});
  try {
    check_experts(config);
    ADD_FAILURE() << "a dense model";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("loss.balance_loss = 0.5 has no effect"));
    EXPECT_THAT(error.what(), HasSubstr("loss.router_z_loss = 0.25 has no effect"));
  }
  config.model.experts = 4;
  EXPECT_NO_THROW(check_experts(config));
}

TEST(Rules, ExpertRanksHaveExpertsThatTheyDivide) {
  EXPECT_THAT(
      mistakes_with({"mesh.expert=2", "loss.balance_bias_rate=0.5"}),
      AllOf(HasSubstr(
                "mesh.expert: 2 expert ranks, but model.architecture = \"llama\" has no experts; set mesh.expert = 1"),
            HasSubstr("balance_bias_rate = 0.5 has no effect on a model without experts")));
  const std::vector<std::string> mixture = {"model.architecture=mixtral", "model.experts=6",
                                            "model.experts_per_token=2"};
  const auto of_mixture = [&](std::vector<std::string> keys) {
    keys.insert(keys.end(), mixture.begin(), mixture.end());
    return mistakes_with(keys);
  };
  EXPECT_EQ(of_mixture({"mesh.expert=3", "mesh.expert_room=2"}), "");
  EXPECT_THAT(of_mixture({"mesh.expert=4"}), HasSubstr("mesh.expert: 4 does not divide model.experts = 6; set 3 or 6"));
  EXPECT_THAT(of_mixture({"mesh.expert_room=2"}), HasSubstr("mesh.expert_room: 2 has no effect with mesh.expert = 1"));
  EXPECT_EQ(mistakes_with({"model.from=weights", "mesh.expert=2"}), "") << "known when the weights are read";
  RunConfig config = with({"model.from=weights", "mesh.expert=2"});
  config.model.experts = 5;
  config.device.cuda_graphs = true;
  try {
    check_experts(config);
    ADD_FAILURE() << "2 ranks for 5 experts, and graphs";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("mesh.expert: 2 does not divide model.experts = 5"));
    EXPECT_THAT(error.what(), HasSubstr("device.cuda_graphs: cuda_graphs replays a captured step"));
  }
}

TEST(Rules, SizesAreRefusedThatCannotBeCounted) {
  EXPECT_THAT(mistakes_with({"model.layers=65536", "model.hidden_size=16777216", "model.intermediate_size=16777216",
                             "model.heads=65536"}),
              HasSubstr("parameters, at most 1e15"));
  EXPECT_THAT(mistakes_with({"batch.micro=1073741824", "batch.global=1073741824"}), HasSubstr("at most 2147483647"));
  EXPECT_THAT(mistakes_with({"data.seq_len=1073741824", "model.vocab_size=2147483647", "batch.micro=1"}),
              HasSubstr("bytes of activations"));
  EXPECT_THAT(mistakes_with({"train.steps=1099511627776", "data.seq_len=1048576", "batch.global=16384"}),
              HasSubstr("more than can be counted"));
  EXPECT_EQ(mistakes_with({"model.layers=126", "model.hidden_size=16384", "model.intermediate_size=53248",
                           "model.heads=128", "model.kv_heads=8", "model.vocab_size=128256", "data.seq_len=131072",
                           "batch.micro=16", "batch.global=16777216"}),
            "");
}

TEST(Rules, SizesOfFilesAreBoundedAsThoseOfRunFiles) {
  EXPECT_EQ(beyond_counting({}), std::nullopt);
  EXPECT_THAT(beyond_counting({.layers = std::int64_t{1} << 40}).value_or(""), HasSubstr("layers is 1099511627776"));
  EXPECT_THAT(beyond_counting({.vocab_size = -1}).value_or(""), HasSubstr("vocab_size is -1"));
}

TEST(Rules, BytesAndWeightsAreBoundedSoThatTheirSumsAreFinite) {
  for (const char* key : {"sync.prefetch_bytes", "memory.budget", "memory.activation_offload_min_bytes"})
    EXPECT_THAT(mistakes_with({std::string(key) + "=9223372036854775807"}), HasSubstr(key)) << key;
  EXPECT_THAT(mistakes_with({"data.train=[{path=\"a\", weight=1e308}, {path=\"b\", weight=1e308}]"}),
              HasSubstr("weight = 1e+308"));
  EXPECT_THAT(mistakes_with({"data.skip_to=9007199254740993"}), HasSubstr("data.skip_to"));
  EXPECT_EQ(with({"data.skip_to=9007199254740992"}).data.skip_to, std::int64_t{1} << 53);
}

TEST(Rules, GraphsAreRefusedWhereStepsDiffer) {
  const std::string graphs = "device.cuda_graphs=true";
  EXPECT_EQ(mistakes_with({graphs}), "");
  EXPECT_EQ(mistakes_with({graphs, "memory.offload=parameters", "memory.recompute=block"}), "");
  EXPECT_THAT(mistakes_with({graphs, "device.type=cpu"}), HasSubstr("requires a GPU"));
  EXPECT_THAT(mistakes_with({graphs, "mesh.tensor=2"}), HasSubstr("or mesh.tensor = 1"));
  EXPECT_THAT(mistakes_with({graphs, "model.architecture=mixtral", "model.experts=4", "model.experts_per_token=2"}),
              HasSubstr("how many tokens each expert gets differs per step"));
  EXPECT_THAT(mistakes_with({graphs, "memory.activation_offload=true", "data.ignore_targets=[3]",
                             "data.document_mask=true", "data.document_end=3"}),
              testing::AllOf(HasSubstr("memory.activation_offload = false"), HasSubstr("and data.ignore_targets = []"),
                             HasSubstr("and data.document_mask = false"), Not(HasSubstr("or mesh.tensor = 1"))));
  EXPECT_THAT(mistakes_with({graphs, "data.packing=best_fit"}),
              testing::AllOf(HasSubstr("or data.packing = \"concatenate\""), Not(HasSubstr("document_mask"))));
}

TEST(Rules, MicroDividesGlobal) {
  EXPECT_THAT(mistakes_with({"batch.micro=3"}), HasSubstr("8 is not a whole multiple of micro 3; set micro to 2 or 4"));
}

TEST(Rules, WarmupAndDecayFitBeforeTheEndStep) {
  EXPECT_THAT(mistakes_with({"lr.warmup_steps=10", "lr.end_step=9"}), HasSubstr("warmup_steps 10 reach end_step 9"));
  EXPECT_EQ(mistakes_with({"lr.warmup_steps=10", "lr.end_step=11"}), "");
  EXPECT_THAT(mistakes_with({"lr.schedule=wsd"}), HasSubstr("requires lr.wsd_decay_steps"));
  EXPECT_THAT(mistakes_with({"lr.schedule=wsd", "lr.warmup_steps=5", "lr.wsd_decay_steps=6", "lr.end_step=9"}),
              HasSubstr("go beyond end_step 9"));
  EXPECT_EQ(mistakes_with({"lr.schedule=wsd", "lr.warmup_steps=5", "lr.wsd_decay_steps=5"}), "");
  EXPECT_THAT(mistakes_with({"lr.wsd_decay_steps=5"}), HasSubstr("have no effect with schedule \"cosine\""));
}

TEST(Rules, AWrittenEndStepLeavesRoomForTheDecay) {
  const std::vector<std::string> wsd{"lr.schedule=wsd", "lr.warmup_steps=5", "lr.wsd_decay_steps=6", "train.steps=10"};
  EXPECT_EQ(mistakes_with(wsd), "");
  std::vector<std::string> written = wsd;
  written.emplace_back("lr.end_step=10");
  EXPECT_THAT(mistakes_with(written), HasSubstr("the decay never begins: warmup_steps 5 + wsd_decay_steps 6"));
  written.back() = "lr.end_step=11";
  EXPECT_EQ(mistakes_with(written), "");
}

TEST(Rules, AnEffectiveRunFileOfAFewStepsIsReadAgain) {
  const std::string run =
      "[model]\nvocab_size=9\nhidden_size=8\nintermediate_size=8\nlayers=1\nheads=2\n[data]\n"
      "train=\"a\"\nseq_len=8\n[batch]\nglobal=1\nmicro=1\n[train]\nsteps=3\n";
  const std::vector<std::string> wsd{"lr.schedule=wsd", "lr.warmup_steps=5", "lr.wsd_decay_steps=6"};
  const std::string effective = print_run_file(parse_run_file(run, "run.toml", wsd));
  EXPECT_EQ(parse_run_file(effective, "run.toml").lr.end_step, 3);
  EXPECT_THROW((void)parse_run_file(effective, "run.toml", {"lr.end_step=3"}), ConfigError);
}

TEST(Rules, LengthsInTokensAreRoundedUpToSteps) {
  const std::vector<std::string> step_of_64{"batch.global=8", "batch.micro=2", "data.seq_len=8"};
  const auto lengths = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), step_of_64.begin(), step_of_64.end());
    return overrides;
  };
  const std::string run =
      "[model]\nvocab_size=9\nhidden_size=8\nintermediate_size=8\nlayers=1\nheads=2\n[data]\n"
      "train=\"a\"\nseq_len=8\n[batch]\nglobal=8\nmicro=2\n";
  const RunConfig config = parse_run_file(
      run, "run.toml",
      {"train.tokens=6401", "lr.schedule=wsd", "lr.warmup_tokens=65", "lr.wsd_decay_tokens=640", "lr.end_tokens=6400"});
  EXPECT_EQ(config.train.steps, 101);
  EXPECT_EQ(config.lr.warmup_steps, 2);
  EXPECT_EQ(config.lr.wsd_decay_steps, 10);
  EXPECT_EQ(config.lr.end_step, 100);
  EXPECT_EQ(parse_run_file(run, "run.toml", {"train.tokens=64"}).lr.end_step, 1) << "train.steps, as ever";
  EXPECT_THROW((void)parse_run_file(run, "run.toml"), ConfigError) << "no length";
  EXPECT_EQ(mistakes_with(lengths({"train.steps=3", "train.tokens=192"})), "");
  EXPECT_THAT(mistakes_with(lengths({"train.steps=4", "train.tokens=192"})),
              HasSubstr("4 contradicts train.tokens = 192, which is 3 steps of 64 tokens; give one of the two"));
  EXPECT_THAT(mistakes_with(lengths({"lr.end_step=4", "lr.end_tokens=192"})), HasSubstr("4 contradicts lr.end_tokens"));
  EXPECT_THAT(mistakes_with(lengths({"lr.schedule=wsd", "lr.warmup_steps=5", "lr.wsd_decay_steps=6", "train.steps=10",
                                     "lr.end_tokens=640"})),
              HasSubstr("remove lr.end_tokens"));
}

TEST(Rules, LengthsInTokensOfAnEffectiveRunFileFollowOtherBatches) {
  const std::string run =
      "[model]\nvocab_size=9\nhidden_size=8\nintermediate_size=8\nlayers=1\nheads=2\n[data]\n"
      "train=\"a\"\nseq_len=8\n[batch]\nglobal=8\nmicro=2\n[train]\ntokens=6400\n[lr]\nwarmup_tokens=640\n";
  const std::string effective = print_run_file(parse_run_file(run, "run.toml"));
  EXPECT_EQ(print_run_file(parse_run_file(effective, "run.toml")), effective);
  const RunConfig other = parse_run_file(effective, "run.toml", {"batch.global=16"});
  EXPECT_EQ(other.train.steps, 50);
  EXPECT_EQ(other.lr.warmup_steps, 5);
  EXPECT_THROW((void)parse_run_file(effective, "run.toml", {"train.steps=7"}), ConfigError);
}

TEST(Rules, GroupsOfParametersHaveNamesAndASetting) {
  EXPECT_EQ(mistakes_with({"optimizer.groups=[]"}), "");
  const std::vector<ParameterGroup> expected{{.names = {"*q*", "*k*"}, .lr = 0.5},
                                             {.names = {"*.bias"}, .weight_decay = 0}};
  EXPECT_EQ(with({"optimizer.groups=[{names=[\"*q*\",\"*k*\"],lr=0.5},{names=[\"*.bias\"],weight_decay=0}]"})
                .optimizer.groups,
            expected);
  for (const auto& [groups, message] : {std::pair{"3", "expected a list of { names"},
                                        {"[3]", "expected a list of { names"},
                                        {"[{lr=1}]", "names is missing"},
                                        {"[{names=[\"*\"]}]", "lr or weight_decay is missing"},
                                        {"[{names=[\"*\"],lr=-1}]", "lr = -1 where it takes"},
                                        {"[{names=[\"*\"],decay=1}]", "only names, lr"}})
    EXPECT_THAT(mistakes_with({std::string("optimizer.groups=") + groups}), HasSubstr(message)) << groups;
  const RunConfig table = parse_run_file(
      "[model]\nvocab_size=9\nhidden_size=8\nintermediate_size=8\nlayers=1\nheads=2\n[data]\n"
      "train=\"a\"\nseq_len=8\n[batch]\nglobal=1\nmicro=1\n[train]\nsteps=3\n"
      "[[optimizer.groups]]\nnames=[\"*q*\",\"*k*\"]\nlr=0.5\n"
      "[[optimizer.groups]]\nnames=[\"*.bias\"]\nweight_decay=0\n",
      "run.toml");
  EXPECT_EQ(table.optimizer.groups, expected);
  EXPECT_EQ(parse_run_file(print_run_file(table), "run.toml").optimizer.groups, expected);
}

TEST(Rules, EpsilonOfTheOptimizerIsANormalNumberInFp32) {
  for (const char* eps : {"0", "1e-50", "1e-39"})
    EXPECT_THAT(mistakes_with({std::string("optimizer.eps=") + eps}), HasSubstr("optimizer.eps"));
  EXPECT_EQ(mistakes_with({"optimizer.eps=1.2e-38"}), "");
}

TEST(Rules, AFewStepsOfALongRunAreAllowed) {
  EXPECT_EQ(mistakes_with({"lr.warmup_steps=10"}), "");
  EXPECT_EQ(mistakes_with({"lr.warmup_steps=2000", "train.steps=3"}), "");
  EXPECT_EQ(mistakes_with({"lr.schedule=wsd", "lr.warmup_steps=2000", "lr.wsd_decay_steps=600", "train.steps=3"}), "");
}

TEST(Rules, EvaluationNeedsItsData) {
  EXPECT_THAT(mistakes_with({"train.eval_every=5"}), HasSubstr("requires data.validation"));
  EXPECT_EQ(with({"train.eval_every=5", "data.validation=v.bin"}).data.validation.at(0).path, "v.bin");
}

TEST(Rules, TokensOfTheRunCanBeCounted) {
  EXPECT_THAT(mistakes_with({"train.steps=1000000000000", "batch.global=1073741824", "data.seq_len=1073741824"}),
              HasSubstr("more than can be counted"));
}

TEST(Rules, SettingsOfNcclNeedNccl) {
  EXPECT_EQ(mistakes_with({"comm.nccl_max_ctas=8"}), "");
  EXPECT_THAT(mistakes_with({"comm.nccl_max_ctas=8", "comm.backend=mpi"}), HasSubstr("comm.backend = \"mpi\""));
  EXPECT_THAT(mistakes_with({"comm.nccl_max_ctas=8", "device.type=cpu"}), HasSubstr("device.type = \"cpu\""));
  EXPECT_THAT(mistakes_with({"comm.nccl_windows=true", "device.type=cpu"}),
              HasSubstr("nccl_windows = true is for NCCL, and device.type = \"cpu\""));
}

TEST(Rules, CopyEnginesOfNcclHaveWindows) {
  EXPECT_EQ(mistakes_with({"comm.nccl_copy_engines=true", "comm.nccl_windows=true"}), "");
  EXPECT_THAT(mistakes_with({"run.deterministic=true", "comm.nccl_windows=true"}), HasSubstr("order of sums"));
  EXPECT_THAT(mistakes_with({"comm.nccl_copy_engines=true"}), HasSubstr("add comm.nccl_windows = true"));
  EXPECT_THAT(mistakes_with({"comm.nccl_copy_engines=true", "comm.backend=mpi"}), HasSubstr("is for NCCL"));
}

TEST(Rules, NcclIsNotAskedToMoveTensorsOfTheHost) {
  EXPECT_EQ(mistakes_with({"comm.backend=nccl"}), "");
  EXPECT_EQ(mistakes_with({"comm.backend=nccl", "device.type=cuda", "memory.activation_offload=true"}), "");
  const std::string offload = mistakes_with({"comm.backend=nccl", "memory.offload=optimizer"});
  for (const char* part : {"memory.offload = \"optimizer\"", "group dp", "device type cpu", "sum",
                           "comm.backend = \"auto\"", "memory.offload = \"none\""})
    EXPECT_THAT(offload, HasSubstr(part));
  const std::string host = mistakes_with({"comm.backend=nccl", "device.type=cpu"});
  for (const char* part :
       {"all_gather", "group shard", "device type cpu", "comm.backend = \"auto\"", "device.type = \"cuda\""})
    EXPECT_THAT(host, HasSubstr(part));
  EXPECT_EQ(mistakes_with({"comm.backend=auto", "memory.offload=parameters"}), "");
}

TEST(Rules, AreNotAskedAboutKeysThatWereRefused) {
  EXPECT_THAT(mistakes_with({"model.heads=5", "model.hidden_size=-1"}), Not(HasSubstr("do not divide")));
}

TEST(NearestDivisors, NamesThoseBelowAndAbove) {
  EXPECT_EQ(nearest_divisors(64, 5), "4 or 8");
  EXPECT_EQ(nearest_divisors(7, 3), "1 or 7");
  EXPECT_EQ(nearest_divisors(8, 20), "8");
  EXPECT_EQ(nearest_divisors(8, 4), "4");
}

TEST(NearestDivisors, OfAnyNumberAreFoundAtOnce) {
  constexpr std::int64_t prime = 1'000'000'000'039;  // too large to try every number below it
  EXPECT_EQ(nearest_divisors(prime, prime / 2), "1 or 1000000000039");
  EXPECT_EQ(nearest_divisors(64 * prime, 65), "64 or 1000000000039");
  for (std::int64_t number = 1; number <= 60; ++number)
    for (std::int64_t most = 0; most <= 61; ++most) {
      std::int64_t tried = std::min(number, most);
      while (tried > 0 && number % tried != 0) --tried;
      EXPECT_EQ(largest_divisor(number, most), tried) << number << ", at most " << most;
    }
}

}  // namespace
}  // namespace trireme::config

// Fault, plans: lengths in steps and in tokens that contradict each other -> exit code 2
// Fault, plans: a wsd decay that never begins -> warning unless `lr.end_step` is set

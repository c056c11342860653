// SPDX-License-Identifier: Apache-2.0
//
// Planned GPU memory in addition to parameters, gradients and activations.
#include <gtest/gtest.h>

#include "small_llama.hpp"
#include "trireme/model/logits.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

TEST(GpuMemory, CountsTheLogitsOfAGpusHead) {
  const model::Model model = llama();
  const shard::Layout layout(model, 2);
  const auto step = schedule::build_step(model, 2, {});
  ReplayOptions replay_options{.compute = DType::bf16, .tokens = 32};
  const Memory on_cpu = replay_memory(step, model, layout, replay_options);
  EXPECT_EQ(on_cpu.workspace, Bytes{0}) << "its chunks stay in the cache";
  replay_options.on_gpu = true;
  const Memory all_at_once = replay_memory(step, model, layout, replay_options);
  EXPECT_EQ(all_at_once.workspace, Bytes{2 * (32 * 257 + 3 * 32 * 72)});
  EXPECT_EQ(all_at_once.total(), on_cpu.total() + all_at_once.workspace + all_at_once.product_workspace);
  replay_options.loss_chunk_tokens = 8;
  EXPECT_EQ(replay_memory(step, model, layout, replay_options).workspace, Bytes{2 * (8 * 257 + (2 * 32 + 8) * 72)});
}

TEST(GpuMemory, CountsWhatLibrariesKeepForProductsOnAGpu) {
  const auto mib = [](DType compute, bool on_gpu, Fp8 fp8 = Fp8::none, double softcap = 0, bool trains = true) {
    model::Model model = llama();
    model.part.fp8.recipe = fp8;
    model.sizes.decoder.score_softcap = softcap;
    model.sizes.head_dim = 64;
    const Memory memory = replay_memory(schedule::build_step(model, 1, {}), model, shard::Layout(model, 1),
                                        {.compute = compute, .tokens = 8, .trains = trains, .on_gpu = on_gpu});
    EXPECT_EQ(to_text(memory).find("workspace: matrix products") != std::string::npos, on_gpu);
    return memory.product_workspace.value >> 20;
  };
  EXPECT_EQ(mib(DType::bf16, false), 0);
  EXPECT_EQ(mib(DType::bf16, true), 32) << "cuBLASLt's";
  EXPECT_EQ(mib(DType::bf16, true, Fp8::none, 0, false), 32) << "of a forward, too";
  EXPECT_EQ(mib(DType::fp32, true), 32) << "libtorch's";
  EXPECT_EQ(mib(DType::bf16, true, Fp8::rowwise), 64) << "both";
  EXPECT_EQ(mib(DType::bf16, true, Fp8::none, 50), 64) << "both: attention by plain products";
}

TEST(GpuMemory, NamesWhatLiesOutsideOfTheBudgetOfAGpu) {
  const model::Model model = llama();
  const auto outside = [&](int shards, int replicas, bool on_gpu) {
    return replay_memory(schedule::build_step(model, 1, {.replicas = replicas}), model, shard::Layout(model, shards),
                         {.tokens = 8, .replicas = replicas, .on_gpu = on_gpu});
  };
  EXPECT_EQ(outside(2, 1, false).outside, Bytes{0});
  const Memory alone = outside(1, 1, true), sharded = outside(2, 1, true), both = outside(2, 2, true);
  EXPECT_EQ(alone.nccl_communicators, 0) << "one rank exchanges nothing";
  EXPECT_EQ(sharded.nccl_communicators, 2) << "gathers and reductions";
  EXPECT_EQ(both.nccl_communicators, 3);
  EXPECT_EQ((both.outside - sharded.outside).value, (sharded.outside - alone.outside).value / 2);
  EXPECT_EQ(sharded.total(), outside(2, 1, false).total() + sharded.workspace + sharded.product_workspace)
      << "not part of the total";
  EXPECT_NE(to_text(both).find("outside of memory.budget"), std::string::npos);
  EXPECT_NE(to_text(both).find("CUDA, 3 NCCL communicators"), std::string::npos);
}

TEST(GpuLogitsTokens, HoldAGibibyteOfBf16AndFewTokensNever) {
  EXPECT_EQ(model::gpu_logits_tokens(128256) * 128256 * 2 >> 20, 1017);
  EXPECT_EQ(model::gpu_logits_tokens(1 << 24), 1024);
}

}  // namespace
}  // namespace trireme::planner

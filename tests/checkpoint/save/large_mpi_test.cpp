// SPDX-License-Identifier: Apache-2.0
//
// Shards of more than 2 GB: every size and offset is 64 bits wide. Needs 2.3 GB of memory and 7 GB of disk.
// labels: slow
// timeout: 600
#include "checkpoint/rank_shards.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/checkpoint/load/verify.hpp"

// ranks: 1

namespace trireme::checkpoint {
namespace {

TEST(Large, AShardBeyondTwoToThe31BytesComesBack) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const SharedDirectory directory(world);
  const std::int64_t vocab = 1'100'007;
  const model::Model model = model::build({.vocab_size = vocab,
                                           .hidden_size = 512,
                                           .intermediate_size = 64,
                                           .layers = 1,
                                           .heads = 4,
                                           .kv_heads = 1,
                                           .tie_embeddings = true});
  const shard::Layout layout(model, 1);
  // One buffer stands for every block: zeros but for a few places near its end.
  std::vector<float> values(static_cast<std::size_t>(layout[ParamBlock{0}].shard_elements()));
  ASSERT_GT(4 * values.size(), std::size_t{1} << 31);
  const std::size_t last = static_cast<std::size_t>(vocab) * 512 - 1;
  values[last] = 1.5F;
  values[(std::size_t{1} << 29) + 7] = -2.5F;
  const Shards shards{
      .model = model, .layout = layout, .mesh = {}, .at = {}, .values = [&](Quantity, ParamBlock block) {
        return std::span(values).first(static_cast<std::size_t>(layout[block].shard_elements()));
      }};
  State state = state_at(3'000'000'000);
  state.tokens = std::int64_t{1} << 45;
  state.samples = std::int64_t{1} << 40;
  const std::string path = save(world, shards, state, {.directory = directory.path()}).path;
  EXPECT_EQ(list_checkpoints(directory.path()).front().step, 3'000'000'000);
  EXPECT_EQ(verify(path), std::vector<std::string>{});
  Reader reader(path, open_checkpoint(path));
  EXPECT_EQ(reader.manifest().state.tokens, std::int64_t{1} << 45);
  EXPECT_EQ(reader.manifest().state.samples, std::int64_t{1} << 40);
  for (const std::size_t at : {last, (std::size_t{1} << 29) + 7}) {
    std::vector<float> some(100);
    const auto end = static_cast<std::int64_t>(at) + 1;
    reader.read(Quantity{2}, "model.embed_tokens.weight", {.first = end - 100, .length = 100}, some);
    EXPECT_EQ(some.back(), values[at]);
    EXPECT_EQ(some.front(), 0.0F);
  }
}

}  // namespace
}  // namespace trireme::checkpoint

// Fault, saves: more than 2 GB, steps beyond 2^31 -> 64 bits everywhere

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/shared_directory.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/checkpoint/save/save.hpp"
#include "trireme/model/chunks.hpp"
#include "trireme/shard/copies.hpp"

/// Runs of a small model without a training program around them, for the tests of checkpoints.
namespace trireme::checkpoint {

inline config::Model small_model() {
  return {.vocab_size = 101,
          .hidden_size = 36,
          .intermediate_size = 52,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 10};
}

/// Shards of one rank of a mesh; every element has a distinct value. chunks: per pipeline rank, in a loop.
class RankShards {
 public:
  RankShards(mesh::Mesh mesh, int rank, const config::Model& sizes = small_model(), int chunks = 1)
      : at_(mesh.coordinates(Rank{rank})),
        whole_(model::build(sizes, {.rank = at_.tensor, .ranks = mesh.tensor})),
        model_(held_of(whole_, mesh, at_.pipeline, chunks)),
        layout_(model_, mesh.shard),
        mesh_(mesh) {
    for (std::size_t q = 0; q < all_quantities.size(); ++q)
      for (int b = 0; b < model_.param_blocks(); ++b)
        values_.emplace_back(static_cast<std::size_t>(layout_[ParamBlock{b}].shard_elements()), 0.0F);
  }

  [[nodiscard]] Shards shards() {
    return {.model = model_,
            .whole = &whole_,
            .layout = layout_,
            .mesh = mesh_,
            .at = at_,
            .values = [this](Quantity quantity, ParamBlock block) { return std::span(values(quantity, block)); }};
  }

  /// The values that belong there at `step`.
  void fill(std::int64_t step) {
    each([&](std::uint64_t key, std::int64_t element, float& value) { value = expected(key, step, element); });
  }
  [[nodiscard]] bool holds(std::int64_t step) {
    bool right = true;
    each(
        [&](std::uint64_t key, std::int64_t element, float& value) { right &= value == expected(key, step, element); });
    return right;
  }
  [[nodiscard]] const model::Model& model() const { return model_; }
  [[nodiscard]] std::vector<float>& values(Quantity quantity, ParamBlock block) {
    return values_[static_cast<std::size_t>(static_cast<int>(quantity) * model_.param_blocks() + block.value)];
  }

 private:
  static model::Model held_of(const model::Model& whole, const mesh::Mesh& mesh, int pipeline_rank, int chunks) {
    if (mesh.pipeline == 1) return whole;
    constexpr std::int64_t seq_len = 13;
    std::vector<int> held;
    for (int c = 0; c < chunks; ++c) held.push_back(c * mesh.pipeline + pipeline_rank);
    return model::take(whole, model::cut_by_flops(whole, mesh.pipeline * chunks, seq_len), held).model;
  }
  static float expected(std::uint64_t key, std::int64_t step, std::int64_t element) {
    return static_cast<float>(uniform_at(key + static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(element)));
  }
  template <class Visit>
  void each(Visit&& visit) {
    for (const Quantity quantity : all_quantities)
      for (int b = 0; b < model_.param_blocks(); ++b)
        for (const shard::Slice& slice :
             shard::whole_slices(model_[ParamBlock{b}], layout_[ParamBlock{b}], at_.shard)) {
          const std::uint64_t key =
              stream_key(static_cast<std::uint64_t>(quantity), model_[{ParamBlock{b}, slice.parameter}].name);
          for (std::int64_t i = 0; i < slice.elements.size(); ++i)
            visit(key, slice.elements.begin + i,
                  values(quantity, ParamBlock{b})[static_cast<std::size_t>(slice.offset + i)]);
        }
  }

  mesh::Coordinates at_;
  model::Model whole_, model_;
  shard::Layout layout_;
  mesh::Mesh mesh_;
  std::vector<std::vector<float>> values_;
};

inline State state_at(std::int64_t step) {
  State state;
  state.step = step;
  state.updates = step - 1;
  state.skipped = 1;
  state.tokens = 1000 * step;
  state.seed = 1234;
  state.learning_rate = 1e-3;
  state.samples = 12 * step;
  state.data = {{"data.seq_len", "13"}};
  state.run_file = "[run]\nname = \"test\"\n";
  return state;
}

using test::SharedDirectory;

inline std::vector<std::string> files_of(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

inline void flip_bit(const std::string& path, std::uint64_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const char byte = static_cast<char>(file.get() ^ (1 << (bit % 8)));
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(byte);
}

}  // namespace trireme::checkpoint

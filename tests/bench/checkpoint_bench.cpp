// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of 2 GB against plain sequential writing with fsync, memcpy and plain cold reading, in turns on the same
// disk:
//
//   mpirun -n 2 --bind-to none build/checkpoint_bench            # writes below the working directory
//
// Each line: GB/s of ours (the slowest rank, median of the repetitions), of the plain way, and `ratio`, ours over
// plain; `ratio_best` is that of the best repetitions, for a disk whose speed jumps.
// tests/bench/checkpoint_vs_pytorch.py compares this with PyTorch's distributed checkpoint.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <vector>

#include "bench/ranks.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/checkpoint/save/background_save.hpp"
#include "trireme/device/allocator.hpp"

namespace trireme::checkpoint_bench {
namespace {

using namespace trireme::checkpoint;
using namespace trireme::io;
using bench::best;
using bench::median;
using bench::timed;
using bench::world;
namespace fs = std::filesystem;

constexpr const char* directory = "checkpoint-bench";
constexpr std::size_t piece = std::size_t{4} << 20;

/// A rank's shards of 168 million parameters and their moments.
class RankShards {
 public:
  RankShards()
      : mesh_{.replicate = 1, .shard = world().size(), .tensor = 1},
        model_(model::build({.vocab_size = 32000,
                             .hidden_size = 1024,
                             .intermediate_size = 2816,
                             .layers = 8,
                             .heads = 16,
                             .kv_heads = 16})),
        layout_(model_, mesh_.shard) {
    std::uint32_t word = 1;
    for (std::size_t q = 0; q < all_quantities.size(); ++q)
      for (int b = 0; b < model_.param_blocks(); ++b) {
        auto& values = values_.emplace_back(static_cast<std::size_t>(layout_[ParamBlock{b}].shard_elements()));
        for (float& value : values) value = static_cast<float>(word = word * 1664525U + 1013904223U) * 0x1p-32F;
      }
  }
  [[nodiscard]] Shards shards() {
    return {.model = model_,
            .layout = layout_,
            .mesh = mesh_,
            .at = mesh_.coordinates(Rank{world().rank()}),
            .values = [this](Quantity quantity, ParamBlock block) {
              return std::span(
                  values_[static_cast<std::size_t>(static_cast<int>(quantity) * model_.param_blocks() + block.value)]);
            }};
  }
  [[nodiscard]] std::vector<std::vector<float>>& values() { return values_; }
  /// Bytes of all ranks.
  [[nodiscard]] double bytes() {
    return static_cast<double>(staging_bytes(shards()).value) * static_cast<double>(world().size());
  }

 private:
  mesh::Mesh mesh_;
  model::Model model_;
  shard::Layout layout_;
  std::vector<std::vector<float>> values_;
};

RankShards& held() {
  static RankShards one;
  return one;
}

std::string plain_path() { return fmt::format("{}/plain-{}", directory, world().rank()); }

/// Writes a rank's bytes to a separate file, sequentially, flushed to disk.
void write_plain() {
  File file = File::create(plain_path());
  for (const std::vector<float>& values : held().values())
    for (auto bytes = std::as_bytes(std::span(values)); !bytes.empty();) {
      const std::size_t count = std::min(bytes.size(), piece);
      file.write(bytes.first(count));
      bytes = bytes.subspan(count);
    }
  file.sync_and_close();
}

void read_plain() {
  const File file = File::open(plain_path());
  std::int64_t at = 0;
  for (std::vector<float>& values : held().values())
    for (auto bytes = std::as_writable_bytes(std::span(values)); !bytes.empty();) {
      const std::size_t count = std::min(bytes.size(), piece);
      file.read_at(at, bytes.first(count));
      at += static_cast<std::int64_t>(count);
      bytes = bytes.subspan(count);
    }
}

/// Takes a file's pages out of memory. They are clean: it was flushed.
void forget(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  if (descriptor < 0 || ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED) != 0)
    throw EnvironmentError(path + ": its pages cannot be dropped");
  ::close(descriptor);
}

void empty_directory() {
  MPI_Barrier(world().handle());
  if (world().rank() == 0) {
    fs::remove_all(directory);
    fs::create_directories(directory);
    sync_directory(directory);
  }
  MPI_Barrier(world().handle());
}

std::string save_all() {
  State state;
  state.step = 1;
  return save(world(), held().shards(), state, {.directory = directory}).path;
}

void report(benchmark::State& state, double bytes, const std::vector<double>& ours, const std::vector<double>& plain) {
  state.counters["GBps"] = bytes / median(ours) * 1e-9;
  state.counters["plain_GBps"] = bytes / median(plain) * 1e-9;
  state.counters["ratio"] = median(plain) / median(ours);
  state.counters["ratio_best"] = best(plain) / best(ours);
}

/// Each kind several times in a row, each time in an empty directory; who goes first changes. The first of each row
/// does not count: it writes to pages and blocks which a virtual machine's host has to find again, and takes two to
/// four times as long, whichever kind it is.
void saving(benchmark::State& state) {
  std::vector<double> ours, plain;
  const auto row = [](std::vector<double>& times, const std::function<void()>& write) {
    for (int i = 0; i < 4; ++i) {
      empty_directory();
      const double seconds = timed(write);
      if (i > 0) times.push_back(seconds);
    }
  };
  for (auto _ : state) {
    const bool first = ours.size() % 2 == 0;
    if (!first) row(plain, write_plain);
    row(ours, [] { (void)save_all(); });
    if (first) row(plain, write_plain);
    state.SetIterationTime(ours.back());
  }
  report(state, held().bytes(), ours, plain);
}

/// Stall of the training: the copy, into memory that the previous save allocated.
void stall(benchmark::State& state) {
  std::vector<double> ours, plain;
  std::vector<std::vector<float>> copies = held().values();
  BackgroundSave background(world());
  State at;
  const auto save_once = [&] {
    at.step += 1;
    const double seconds = timed([&] {
      if (!background.start(held().shards(), at, {.directory = directory, .keep = 1, .base_step = at.step - 1}))
        throw EnvironmentError("no memory for the copy");
    });
    if (background.take().failure) throw EnvironmentError("the save failed");
    return seconds;
  };
  empty_directory();
  (void)save_once();
  for (auto _ : state) {
    plain.push_back(timed([&] {
      for (std::size_t i = 0; i < copies.size(); ++i)
        std::memcpy(copies[i].data(), held().values()[i].data(), 4 * copies[i].size());
    }));
    ours.push_back(save_once());
    state.SetIterationTime(ours.back());
  }
  report(state, held().bytes(), ours, plain);
}

/// Checksums and digests verified; cold: from the disk; warm: from memory.
void loading(benchmark::State& state, bool cold) {
  std::vector<double> ours, plain;
  empty_directory();
  const std::string path = save_all();
  write_plain();
  const auto prepare = [&] {
    MPI_Barrier(world().handle());
    if (!cold) return;
    if (world().rank() == 0)
      for (const auto& entry : fs::recursive_directory_iterator(directory))
        if (entry.is_regular_file()) forget(entry.path().string());
    MPI_Barrier(world().handle());
  };
  for (auto _ : state) {
    prepare();
    plain.push_back(timed(read_plain));
    prepare();
    ours.push_back(timed([&] { (void)load(world(), path, held().shards()); }));
    state.SetIterationTime(ours.back());
  }
  report(state, held().bytes(), ours, plain);
  empty_directory();
}

void cold_load(benchmark::State& state) { loading(state, true); }
void warm_load(benchmark::State& state) { loading(state, false); }

}  // namespace

BENCHMARK(saving)->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
BENCHMARK(stall)->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
BENCHMARK(cold_load)->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
BENCHMARK(warm_load)->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);

}  // namespace trireme::checkpoint_bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/units.hpp"

/// Performance and size of a cluster, read from a machine file.
namespace trireme::planner {

/// Source of a machine file's numbers.
enum class Grade {
  data_sheet,  ///< data sheets; achieved rates scaled from another GPU's
  nominal,     ///< data sheets and runs of others, not fitted
  fitted,      ///< fitted to runs
  measured     ///< `doctor --measure`
};
[[nodiscard]] std::string_view to_text(Grade grade);

/// A link's time over its expected time: of ten runs one is faster than `p10`, one slower than `p90`.
struct Spread {
  double p10 = 0.7;
  double p90 = 1.3;
};

/// One collective over n ranks costs latency + rank_latency * (n - 1) + its bytes / bandwidth.
struct Link {
  double latency = 0;       ///< seconds, per call
  double rank_latency = 0;  ///< seconds, per call and rank after the first
  double bandwidth = 0;     ///< bytes per second: of a rank inside a node, of all a node's adapters between nodes
  Spread spread{};
};

/// The achieved rate of matrix products of one size.
struct ProductRate {
  double flops = 0;  ///< of one product: 2 M N K
  double rate = 0;   ///< FLOP/s
};

struct Machine {
  std::string name;               ///< such as "h100-efa"
  std::string about;              ///< one line for a person
  Grade grade = Grade::nominal;   ///< of the numbers below
  std::vector<std::string> gpus;  ///< words that a measured row's `gpu` column holds for this machine
  double gpus_per_node = 8;
  double cores = 0;  ///< of a node, shared by its CPU ranks; 0: unknown, or the rates were measured side by side
  double measured_nodes = 1;  ///< the largest job that the links were measured on

  double peak_flops = 0;              ///< of one GPU in bf16, dense: the denominator of MFU
  std::vector<ProductRate> products;  ///< by size, smallest first; between two sizes the rate is interpolated
  double fp32_factor = 1;             ///< rate of fp32 products over that of bf16 ones
  double fp8_factor = 0;              ///< rate of fp8 products over that of bf16 ones; 0: GPUs without them
  double attention_flops = 0;         ///< FLOP/s over the causal half, times head_dim / (head_dim + 16)
  double memory_bandwidth = 0;        ///< bytes per second that kernels achieve
  Bytes memory{};                     ///< of one GPU
  double board_watts = 0;             ///< power limit of one GPU that the rates were achieved with; 0: unknown
  double watts = 0;                   ///< of one GPU and its part of the node, at load
  double contention = 0;              ///< seconds that compute slows down per second of concurrent communication

  Bytes node_memory{};               ///< host memory of a node; 0: unknown
  double node_bandwidth = 0;         ///< bytes per second of a node's host memory, shared by its ranks; 0: unknown
  double host_bandwidth = 0;         ///< bytes per second between one GPU and host memory, each way
  double host_memory_bandwidth = 0;  ///< bytes per second that one rank's host update achieves
  double layer_seconds = 0;          ///< host time to launch one layer's forward and backward
  double step_seconds = 0;           ///< per step, for all that is not modelled
  /// 1: CPU ranks work on several lanes at a time; 0: one thread does one op after the other, as where no core is
  /// spare.
  double lane_threads = 1;

  double gpu_mtbf = 0;  ///< seconds between failures that end a job, of one GPU and its part of all else; 0: unknown
  double restart_seconds = 600;       ///< from a failure to the first new step, loading not counted
  double least_save_interval = 0;     ///< seconds between saves, of those that are suggested
  double node_storage_bandwidth = 0;  ///< bytes per second that one node writes to the file system; 0: unknown
  double storage_bandwidth = 0;       ///< the same of a whole job

  Link inside;   ///< between the GPUs of a node
  Link between;  ///< between nodes
};

/// Reads a machine file; `name` identifies it in messages. Throws ConfigError with file, line and column, found and
/// expected value.
[[nodiscard]] Machine parse_machine(std::string_view text, const std::string& name);

/// The whole of a file of at most `most` bytes that `option` names. Throws ConfigError, also on an error of the system.
[[nodiscard]] std::string read_small_file(std::string_view option, const std::string& path, std::int64_t most);

/// The machine file at a path, or the shipped one of that name. Throws ConfigError listing the shipped names.
[[nodiscard]] Machine load_machine(const std::string& path_or_name);

/// The shipped machine whose `gpus` words all occur in a GPU's name from a table of measured runs: of several the one
/// with the most words, the first of those.
[[nodiscard]] std::optional<Machine> find_machine(const std::string& gpu);

/// A shipped machine for a GPU.
struct GpuMachine {
  std::string name;
  bool same = true;  ///< false: only similar, as an H100 with NVLink to one on a PCIe card
};
/// The shipped machine whose GPUs have the given CUDA name, such as "NVIDIA A100-SXM4-40GB". Used by `init` and
/// sync.policy = auto. Nothing for other names.
[[nodiscard]] std::optional<GpuMachine> machine_of_gpu(std::string_view gpu, Bytes memory);
/// The same or a similar one; h100 for other names, local for an empty one, which is a CPU's.
[[nodiscard]] Machine machine_of(std::string_view gpu, Bytes memory);

/// A machine file with the same values.
[[nodiscard]] std::string print_machine(const Machine& machine);

/// A machine file that the program carries (inputs/machines).
struct ShippedMachine {
  std::string_view name;
  std::string_view text;
};
[[nodiscard]] std::span<const ShippedMachine> shipped_machines();

}  // namespace trireme::planner

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/config/load.hpp"
#include "trireme/model/model.hpp"
#include "trireme/optimizer/plan.hpp"
#include "trireme/schedule/op.hpp"
#include "trireme/shard/layout.hpp"

/// Replays a schedule with sizes instead of data: predicts memory and traffic without running it.
namespace trireme::planner {

/// Rows for the experts of one rank in a microbatch of a layer; their numbers depend on the data.
struct ExpertRows {
  std::int64_t received = 0;  ///< by the rank's experts, its own rows among them
  std::int64_t sent = 0;      ///< to other ranks
  std::int64_t fetched = 0;   ///< from other ranks
  friend bool operator==(const ExpertRows&, const ExpertRows&) = default;
};
/// Assumed expert rows if none are recorded: balanced over the ranks; balanced, with mesh.expert_room times as many in
/// memory; or all rows on one rank.
enum class Routing : std::uint8_t { balanced, bound, worst };

/// The sizes that turn ops into bytes.
struct ReplayOptions {
  DType compute = DType::fp32;
  config::Reduce reduce = config::Reduce::fp32;
  bool split_masters = false;  ///< bf16 and a remainder of 16 bits
  optimizer::OptimizerPlan optimizer{};
  std::int64_t tokens = 0;     ///< of one microbatch of one rank: micro * seq_len / context
  std::int64_t sequences = 0;  ///< of one microbatch: micro
  int replicas = 1;
  bool trains = true;                  ///< false: a forward only, no gradients and optimizer state
  int shard_rank = 0;                  ///< whose: which copied parameters a shard holds differs
  bool on_gpu = false;                 ///< whose workspace is counted: its head holds logits of up to 1 GiB at a time
  std::int64_t loss_chunk_tokens = 0;  ///< 0: chosen
  bool saves_beside = false;           ///< checkpoints are written from a copy while the training continues
  Routing routing = Routing::bound;
  double expert_room = config::Mesh{}.expert_room;  ///< rows of `bound`, times the balanced number
  /// Rows recorded by a run, by compute block and microbatch; override `routing`.
  std::map<std::pair<Block, Microbatch>, ExpertRows> recorded_rows{};

  /// Tokens on the residual stream of one tensor rank.
  [[nodiscard]] std::int64_t stream_tokens(const model::Model& model) const {
    return model.part.sequence_parallel ? tokens / model.part.ranks : tokens;
  }
  [[nodiscard]] ExpertRows rows_of(const model::Model& model, Block block, Microbatch m) const;
};

/// Activations and gradient shards together: the one are highest when backwards begin, the other when they have ended.
struct AtOnce {
  Bytes most;
  Bytes with_most_activations, with_most_gradients;  ///< while the one, and the other, is highest
  int op = 0;                                        ///< during which it is the most
};

/// Bytes of one rank by category, each at its highest; buffers are allocated once, activations and gradient shards rise
/// and fall.
struct Memory {
  Bytes parameters_sharded, parameters_unsharded, parameters_resharded, gradients_sharded, gradients_unsharded,
      optimizer, activations;
  AtOnce at_once;       ///< of activations and gradients_sharded
  Bytes communication;  ///< slots between pipeline ranks
  /// On a GPU, the larger of the head's logits with its input and the input's gradient, and a layer's expert rows.
  /// Other workspace is not counted, except for `product_workspace`.
  Bytes workspace;
  Bytes product_workspace;                       ///< on a GPU, kept for matrix products
  std::string workspace_of{}, workspace_peak{};  ///< which, and the op during which it is highest
  /// On a GPU, in addition to the above and outside of memory.budget: CUDA's memory of a process, and NCCL's buffers,
  /// estimated per communicator. 0 on a CPU.
  Bytes outside;
  int nccl_communicators = 0;    ///< of this rank, one for each group and lane whose ranks exchange tensors
  int activations_peak_op = 0;   ///< the op during which activations are highest
  std::string activations_peak;  ///< the same in words
  std::string peak;              ///< the op during which all is highest; empty: all the step
  /// In host memory.
  struct Host {
    Bytes parameters_sharded, gradients_sharded, optimizer, activations;
    Bytes other;  ///< the copy that checkpoint.async writes from: between the first save and the last
    [[nodiscard]] Bytes total() const {
      return parameters_sharded + gradients_sharded + optimizer + activations + other;
    }
  } host{};
  bool on_gpu = false;                ///< false: device memory is host memory
  [[nodiscard]] Bytes total() const;  ///< on the device

  /// A rank's bytes in the memory of its node's host.
  struct InHost {
    Bytes bytes;
    Bytes copies;  ///< of these, for checkpoint.async
  };
  [[nodiscard]] InHost in_host() const { return {host.total() + (on_gpu ? Bytes{} : total()), host.other}; }
  std::vector<InHost> by_pipeline_rank{};  ///< set by predict_memory() and plans of a pipeline
};
[[nodiscard]] Memory replay_memory(const schedule::Schedule& schedule, const model::Model& model,
                                   const shard::Layout& layout, const ReplayOptions& replay_options);

/// Traffic of one kind of collective in one step.
struct Moved {
  Bytes bytes;  ///< sent from one rank by a bandwidth-optimal algorithm
  std::int64_t calls = 0;
  friend bool operator==(const Moved&, const Moved&) = default;
};
/// The run file with `device.type = "auto"` replaced by the actual device.
[[nodiscard]] config::RunConfig computing_on(config::RunConfig config, bool gpu);

/// Options of one rank for a run file. On a GPU if `device.type` is cuda, not auto: see computing_on().
[[nodiscard]] ReplayOptions replay_options_of(const config::RunConfig& config, const config::Resolved& mesh);

/// Part of the model on tensor rank `rank`, with the tokens of context rank `context_rank` and the experts of expert
/// rank `expert_rank`.
[[nodiscard]] model::TensorPart tensor_part(const config::RunConfig& config, const config::Resolved& mesh, int rank,
                                            int context_rank = 0, int expert_rank = 0);

/// By group ("shard", "shard_group" for gathers out of copies that groups keep, "replicate", "tensor",
/// "tensor_group" for shared key and value heads, "host" for copies between device and host), then by operation, as in
/// the metrics; control traffic left out.
using Traffic = std::map<std::string, std::map<std::string, Moved>>;
[[nodiscard]] Traffic replay_traffic(const schedule::Schedule& schedule, const model::Model& model,
                                     const shard::Layout& layout, const ReplayOptions& replay_options);

/// With mesh.expert > 1: activations for several distributions of tokens over experts, known only at run time.
[[nodiscard]] std::string rows_text(const schedule::Schedule& schedule, const model::Model& model,
                                    const shard::Layout& layout, ReplayOptions replay_options);

/// Tables a person reads.
[[nodiscard]] std::string to_text(const Memory& memory);
[[nodiscard]] std::string to_text(const Traffic& traffic);

}  // namespace trireme::planner

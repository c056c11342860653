// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/model/model.hpp"
#include "trireme/optimizer/plan.hpp"
#include "trireme/schedule/buffers.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::store {

/// Fills `out` with elements `elements` of a parameter: initial values, or weights read from a file.
class ParameterInitializer {
 public:
  using Fill = std::function<void(const model::Parameter& parameter, shard::Range elements, std::span<float> out)>;
  /// concurrent: several threads may call it at the same time.
  template <class Values>
  requires std::is_constructible_v<Fill, Values> ParameterInitializer(Values fill, bool concurrent = false)
      : fill_(std::move(fill)), concurrent_(concurrent) {}

  void operator()(const model::Parameter& parameter, shard::Range elements, std::span<float> out) const {
    fill_(parameter, elements, out);
  }
  [[nodiscard]] bool concurrent() const { return concurrent_; }

 private:
  Fill fill_;
  bool concurrent_;
};

/// The initial values (docs/numerics.md): ones, or normal(0, std) by Philox keyed by (seed, name, element).
[[nodiscard]] ParameterInitializer initial_values(std::uint64_t seed);

/// [elements], zeroed, charged to `category`.
using Allocate = std::function<at::Tensor(device::Category category, std::int64_t elements, DType type)>;

/// Buffers that a schedule needs.
struct Buffers {
  schedule::RingSizes rings;
  std::optional<int> reshard_group{};       ///< groups that keep a copy between forward and backward
  std::vector<schedule::OnHost> on_host{};  ///< by parameter block
  bool partial = false;  ///< a buffer for gradient shards on their way: to be summed over replicas, or rounded
  std::vector<bool> transient_gradients{};  ///< by parameter block: allocated per step
  bool trains = true;                       ///< false: no gradients and optimizer state
  optimizer::OptimizerPlan optimizer{};
  std::vector<optimizer::OwnerPlan::Buffers> matrices{};  ///< by slot: messages of matrices, with Muon
  bool split_masters = false;                             ///< masters are stored as bf16 and a remainder
  std::int64_t stream_elements = 0;  ///< of a slot between pipeline ranks: a microbatch's residual stream
  Allocate travelling_memory{};      ///< allocator of registered device buffers for collectives; absent: the usual one
};

/// The buffers that serve every one of the schedules, which do not run at the same time.
[[nodiscard]] Buffers buffers_for(std::span<const schedule::Schedule> schedules, const model::Model& model,
                                  bool trains);

/// This rank's parameters, gradients and optimizer state, and the rings of unsharded buffers. All memory is allocated
/// here, once, except for temporary gradient shards. Zero-copy flat sharding: unsharded parameters and
/// gradients are views of a block's flat buffer, which collectives fill and read. On a GPU (`device`) offloaded
/// state is in page-locked host memory, everything else on the GPU.
class ParameterStore {
 public:
  ParameterStore(const model::Model& model, const shard::Layout& layout, int shard_rank, const Buffers& buffers,
                 DType compute, at::Device device = at::kCPU);

  /// Fills the masters from `provider`, and the tensors derived from them. All threads of libtorch's team call a
  /// concurrent provider, and copies to a GPU overlap with it.
  void fill(const ParameterInitializer& provider);

  /// fp32 masters of this rank's shard, [shard_elements]; undefined if they are split.
  [[nodiscard]] at::Tensor& master(ParamBlock block) { return at(master_, block); }
  /// Split masters without `host_compute_shard` (masters.hpp): words of 16 bits as a bf16 tensor,
  /// [shard_elements]; undefined if masters are fp32.
  [[nodiscard]] at::Tensor& remainder(ParamBlock block) { return at(remainder_, block); }
  [[nodiscard]] bool split_masters() const { return split_masters_; }
  /// fp32 masters, [shard_elements]: themselves, or a copy in the host's memory of split ones.
  [[nodiscard]] at::Tensor masters(ParamBlock block);
  /// Makes these the masters. values: fp32 [shard_elements], in any memory. `derive_compute_shard` follows.
  void put_masters(ParamBlock block, const at::Tensor& values);
  /// Source of gathers, [shard_elements] in the compute dtype: the masters themselves in fp32, their rounded copy in
  /// bf16; a copy on the device of `host_compute_shard` where the masters live on the host. Undefined if parameters
  /// are uploaded for each gather.
  [[nodiscard]] at::Tensor& compute_shard(ParamBlock block) { return at(compute_shard_, block); }
  /// Target of updates and source of uploads: `compute_shard`, or in host memory where the masters are on the host.
  [[nodiscard]] at::Tensor& host_compute_shard(ParamBlock block) { return at(host_compute_shard_, block); }
  /// Recomputes the compute shard after a change of the masters other than by an update.
  void derive_compute_shard(ParamBlock block);
  /// State of the block that is in host memory.
  [[nodiscard]] schedule::OnHost on_host(ParamBlock block) const {
    return on_host_.at(static_cast<std::size_t>(block.value));
  }
  /// Reduced gradient: fp32, [shard_elements].
  [[nodiscard]] at::Tensor& gradient(ParamBlock block) { return at(gradient_, block); }
  /// Allocates a transient gradient shard on the calling thread's current stream, and frees it. Views of it stay valid.
  /// Elements that no backward writes (`shard::without_gradient`) but the norm reads are zeroed; the others are
  /// uninitialized, or NaN (poison).
  void allocate_gradient(ParamBlock block, bool poison = false);
  void free_gradient(ParamBlock block);
  /// State `index` of the optimizer's (OptimizerPlan::states), in its type, laid out as OptimizerPlan::state_layout.
  [[nodiscard]] at::Tensor& state(ParamBlock block, int index) {
    return at(states_.at(static_cast<std::size_t>(index)), block);
  }
  [[nodiscard]] int states() const { return static_cast<int>(states_.size()); }

  /// With Muon, in the type of matrices: this rank's pieces of those of a window, by owner, and those that it owns, by
  /// rank (optimizer::OwnerPlan).
  [[nodiscard]] at::Tensor& matrix_pieces(int slot) { return matrix_pieces_.at(static_cast<std::size_t>(slot)); }
  [[nodiscard]] at::Tensor& owned_matrices(int slot) { return owned_matrices_.at(static_cast<std::size_t>(slot)); }

  /// Number of changes of the masters other than by updates.
  [[nodiscard]] std::int64_t masters_version() const { return masters_version_; }
  /// The correction bias of the router of a layer whose block this is, as a whole: fp32 [E], of the same bits as the
  /// masters of all ranks. Undefined if there is none, and until it is put here after the masters are filled.
  [[nodiscard]] at::Tensor& choice_bias(ParamBlock block) { return at(choice_bias_, block); }
  /// Writes this rank's part of it into the masters.
  void put_choice_bias(ParamBlock block);

  /// This rank's part of the copy that its group keeps of `block`: [padded / group] in the compute dtype.
  [[nodiscard]] at::Tensor& group_copy(ParamBlock block) { return at(group_copy_, block); }
  /// A block's gradient shard before its sum over the replicas: fp32, [shard_elements].
  [[nodiscard]] at::Tensor partial(ParamBlock block) { return partial_.narrow(0, 0, layout_[block].shard_elements()); }

  /// Places the block's shard in memory shared by all ranks that gather the block, as part `part` of it: its gathers
  /// then copy nothing, for any slot. whole: [gathered] in the compute dtype. Before `fill`; not for blocks in host
  /// memory.
  void lie_in_common(ParamBlock block, const at::Tensor& whole, int part);
  [[nodiscard]] bool lies_in_common(ParamBlock block) const {
    return common_.at(static_cast<std::size_t>(block.value)).defined();
  }

  /// Destination of a gather of `block`: that memory, or a ring's buffer. [gathered], in the compute dtype.
  [[nodiscard]] at::Tensor& parameter_buffer(ParamBlock block, schedule::Slot slot) {
    return lies_in_common(block) ? at(common_, block) : at(parameter_ring_, slot);
  }
  /// A ring's buffer: [gathered], fp32.
  [[nodiscard]] at::Tensor& gradient_buffer(schedule::Slot slot) { return at(gradient_ring_, slot); }

  /// A shard on its way from or to the host: [shard_elements], in the compute dtype; gradients in fp32.
  [[nodiscard]] at::Tensor& upload_buffer(schedule::Slot slot) { return at(upload_ring_, slot); }
  [[nodiscard]] at::Tensor& download_buffer(schedule::Slot slot) { return at(download_ring_, slot); }

  /// The residual stream, or its gradient, between pipeline ranks: [stream_elements] in the compute dtype.
  [[nodiscard]] at::Tensor& send_buffer(schedule::Slot slot) { return at(send_ring_, slot); }
  [[nodiscard]] at::Tensor& receive_buffer(schedule::Slot slot) { return at(receive_ring_, slot); }

  /// Memory that gathers and reductions read and write in every step, on the device: in one order on all ranks that
  /// hold the same blocks.
  struct Travelling {
    enum class Over { gather, gather_of_copies, reduce } over;  ///< the collectives
    ParamBlock block;                                           ///< one of those whose group it is
    at::Tensor memory;
    bool whole;  ///< the gathered or summed buffer: [gathered]; else the part that a rank sends or keeps
  };
  [[nodiscard]] std::vector<Travelling> all_travelling() const;

  /// Parameter `ref` in the buffer of its block, in its full shape: a view. Undefined if it is of a part of its
  /// block that other ranks gather.
  [[nodiscard]] at::Tensor parameter_view(schedule::Slot slot, model::ParamRef ref) {
    return view(parameter_buffer(ref.block, slot), ref);
  }
  [[nodiscard]] at::Tensor gradient_view(schedule::Slot slot, model::ParamRef ref) {
    return view(gradient_buffer(slot), ref);
  }

  /// The same if one rank's shard is the whole parameter: a view of the shard itself.
  [[nodiscard]] at::Tensor parameter_view(model::ParamRef ref) { return view(compute_shard(ref.block), ref); }
  [[nodiscard]] at::Tensor gradient_view(model::ParamRef ref) { return view(gradient(ref.block), ref); }

  [[nodiscard]] const shard::Layout& layout() const { return layout_; }
  /// Index of this rank among those that the parameters are sharded over.
  [[nodiscard]] int shard_rank() const { return shard_rank_; }
  /// Index of this rank's shard of the block.
  [[nodiscard]] int shard_of(ParamBlock block) const { return layout_.shard_of(block, shard_rank_); }
  [[nodiscard]] DType compute() const { return compute_; }

 private:
  using Ring = std::vector<std::vector<at::Tensor>>;
  static at::Tensor& at(std::vector<at::Tensor>& list, ParamBlock block) {
    return list.at(static_cast<std::size_t>(block.value));
  }
  static at::Tensor& at(Ring& ring, schedule::Slot slot) {
    return ring.at(static_cast<std::size_t>(slot.ring)).at(static_cast<std::size_t>(slot.index));
  }
  [[nodiscard]] at::Tensor view(const at::Tensor& flat, model::ParamRef ref) const;
  /// Memory on the device that a gather or reduction reads or writes.
  [[nodiscard]] at::Tensor travelling(device::Category category, std::int64_t elements, DType type) const;
  /// Elements of a shard on their way from `fill`'s provider to where they are kept.
  struct Staging;
  void fill_chunk(const ParameterInitializer& provider, ParamBlock block, std::span<const shard::Slice> pieces,
                  shard::Range chunk, Staging& staging);
  /// The last part of `derive_compute_shard`: the compute shard is that of the new masters.
  void masters_changed(ParamBlock block);
  void allocate_shards(const Buffers& buffers);
  void allocate_rings(const Buffers& buffers);

  const model::Model& model_;
  const shard::Layout& layout_;
  int shard_rank_;
  DType compute_;
  at::Device device_;
  std::vector<schedule::OnHost> on_host_;
  Allocate travelling_memory_;
  bool split_masters_;
  std::vector<at::Tensor> master_, remainder_, compute_shard_, host_compute_shard_, gradient_, group_copy_,
      choice_bias_, common_;
  std::vector<std::vector<at::Tensor>> states_;              ///< by state, then by parameter block
  std::vector<at::Tensor> matrix_pieces_, owned_matrices_;   ///< by slot
  std::vector<device::Charge> charges_;                      ///< of this rank's parts of common_
  std::vector<std::vector<shard::Range>> without_gradient_;  ///< by parameter block
  std::int64_t masters_version_ = 0;
  at::Tensor partial_;
  Ring parameter_ring_, gradient_ring_, upload_ring_, download_ring_, send_ring_, receive_ring_;
};

}  // namespace trireme::store

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/kernels/experts.hpp"
#include "trireme/kernels/loss_sums.hpp"
#include "trireme/model/stage_tensors.hpp"
#include "trireme/nn/stage.hpp"
#include "trireme/schedule/stage_access.hpp"

/// The tensors that stages work on, by name.
namespace trireme::nn {

/// While it exists, operators go straight to their kernels: no autograd graph, no version counters.
using PlainOperators = at::AutoDispatchBelowADInplaceOrView;

/// The rows of a layer of experts, between its stages.
struct Routing {
  kernels::ExpertRows rows;  ///< places of the rows of each token
  /// Under expert parallelism: begins of the rows of each of this rank's experts, and the end of the last.
  std::vector<std::int64_t> received;
};

/// Losses of the stages of a step.
struct Losses {
  kernels::LossSums head{};          ///< unscaled
  double balance = 0, router_z = 0;  ///< of routers, scaled
  at::Tensor head_on_device{};       ///< on a GPU instead of `head`, [2] fp64, without a wait of the host
  at::Tensor routers_on_device{};    ///< on a GPU instead of `balance` and `router_z`, [2] fp64
  Losses& operator+=(const Losses& more);
};

/// The tensors between the ops of one microbatch, by name and phase. Two microbatches share none.
class Values {
 public:
  [[nodiscard]] at::Tensor& operator[](schedule::TensorRef tensor) {
    return tensors_.at(static_cast<std::size_t>(tensor.phase)).at(static_cast<std::size_t>(tensor.id));
  }
  /// The residual stream of a phase.
  [[nodiscard]] at::Tensor& residual(schedule::Phase phase) { return (*this)[{model::TensorId::residual, phase}]; }
  /// Between a router and the end of its layer.
  [[nodiscard]] Routing& routing() { return routing_; }

 private:
  using Tensors = std::array<at::Tensor, model::tensor_ids>;
  std::array<Tensors, static_cast<std::size_t>(schedule::Phase::recompute) + 1> tensors_;
  Routing routing_;
};

/// The tensors of one op, by name: those that the schedule lists for it. Any other is a BugError: lanes would not wait
/// for it.
class Frame {
 public:
  using OnEnd = std::function<void(schedule::TensorSet used)>;
  /// phase: of tensors that are named without one. on_end: receives the tensors that the op has used.
  Frame(Values& values, const schedule::TensorAccess& listed, schedule::Phase phase, OnEnd on_end)
      : values_(values), listed_(listed.reads | listed.writes), phase_(phase), on_end_(std::move(on_end)) {}
  ~Frame() {
    if (on_end_) on_end_(used_);
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  [[nodiscard]] at::Tensor& operator[](schedule::TensorRef tensor) const {
    if (!listed_.has(tensor) && local_ != nullptr) return (*local_)[tensor];
    invariant(listed_.has(tensor), "an op uses a tensor that the schedule does not list for it");
    used_.add(tensor);
    return values_[tensor];
  }
  [[nodiscard]] at::Tensor& operator[](model::TensorId id) const { return (*this)[{id, phase_}]; }
  /// Returns a tensor and leaves its place empty.
  [[nodiscard]] at::Tensor take(schedule::TensorRef tensor) const {
    return std::exchange((*this)[tensor], at::Tensor());
  }
  [[nodiscard]] at::Tensor take(model::TensorId id) const { return take({id, phase_}); }
  /// Whether the op may use a tensor.
  [[nodiscard]] bool has(schedule::TensorRef tensor) const { return local_ != nullptr || listed_.has(tensor); }
  [[nodiscard]] bool has(model::TensorId id) const { return has({id, phase_}); }
  /// Frees a tensor that no later op reads. Not an access.
  void free(model::TensorId id) const { values_[{id, phase_}].reset(); }

 protected:
  /// Permits all other tensors, which `local` holds: those between stages that run in one op.
  void set_local(Values* local) { local_ = local; }

 private:
  Values& values_;
  Values* local_ = nullptr;
  schedule::TensorSet listed_;
  schedule::Phase phase_;
  OnEnd on_end_;
  mutable schedule::TensorSet used_;
};

/// The tensors that one stage keeps, by name: those of its table. Any other is a BugError.
class Kept {
 public:
  explicit Kept(std::span<const model::TensorSpec> table) : table_(table) {}
  [[nodiscard]] at::Tensor& operator[](model::TensorId id) { return at(id, false); }
  [[nodiscard]] bool lists(model::TensorId id) const { return lists(id, false); }
  [[nodiscard]] at::Tensor& gradient(model::TensorId id) { return at(id, true); }

  /// Takes out the tensors that a stage saves, in the order of its table.
  [[nodiscard]] std::vector<at::Tensor> take_saved(model::Keep keep);
  /// The inverse, of Keep::products or Keep::all.
  void put_saved(std::vector<at::Tensor> tensors);
  void put_saved(std::vector<at::Tensor> tensors, model::Keep keep);
  /// The same of tensors between the two parts of a backward.
  [[nodiscard]] std::vector<at::Tensor> take_pending();
  void put_pending(std::vector<at::Tensor> tensors);

  /// Either of both.
  void put_any(std::vector<at::Tensor> tensors);
  /// Frees the tensors that no second part of a backward reads.
  void keep_pending() {
    std::vector<at::Tensor> pending = take_pending();
    tensors_ = {};
    put_pending(std::move(pending));
  }

  /// Gradients of parameters that wait: those of `ids` that the table lists.
  void put_gradients(std::initializer_list<model::TensorId> ids, std::span<const at::Tensor> gradients);
  [[nodiscard]] std::vector<at::Tensor> gradients(std::initializer_list<model::TensorId> ids) const;

 private:
  static std::size_t index(model::TensorId id, bool gradient) {
    return 2 * static_cast<std::size_t>(id) + static_cast<std::size_t>(gradient);
  }
  [[nodiscard]] bool lists(model::TensorId id, bool gradient) const;
  [[nodiscard]] at::Tensor& at(model::TensorId id, bool gradient);
  template <class Chosen>
  [[nodiscard]] std::vector<at::Tensor> take_all(const Chosen& chosen);
  template <class Chosen>
  void put_all(std::vector<at::Tensor> tensors, const Chosen& chosen);

  std::span<const model::TensorSpec> table_;
  std::array<at::Tensor, 2 * static_cast<std::size_t>(model::all_tensor_ids)> tensors_;
};

/// The operands of a stage in one op.
struct StageCall {
  std::span<const at::Tensor> parameters;
  std::span<const Grad> gradients;
  const Microbatch& batch;
  Mode mode = Mode::train;
  Routing& routing;
  Losses& losses;  ///< of this call
};

/// One op of a stage.
class StageFrame : public Frame {
 public:
  StageFrame(Values& values, Kept& kept_tensors, const StageCall& call, const schedule::TensorAccess& listed,
             schedule::Phase phase, OnEnd on_end = {})
      : Frame(values, listed, phase, std::move(on_end)),
        parameters(call.parameters),
        gradients(call.gradients),
        batch(call.batch),
        mode(call.mode),
        kept(kept_tensors),
        routing(call.routing),
        losses(call.losses) {}

  /// Whether an op reads the output of the stage: none does in a rebuild of its saved tensors.
  [[nodiscard]] bool wants_output() const { return mode != Mode::rebuild; }
  /// The residual stream where a product is added to it.
  [[nodiscard]] at::Tensor addend(model::TensorId result) const {
    return result == model::TensorId::residual ? (*this)[result] : at::Tensor();
  }
  /// The gradient that a backward reads. That of the residual stream stays: a norm before the branch reads it, too.
  [[nodiscard]] at::Tensor upstream(model::TensorId id) const {
    return id == model::TensorId::residual ? (*this)[id] : take(id);
  }

  std::span<const at::Tensor> parameters;  ///< in the compute dtype
  std::span<const Grad> gradients;         ///< of the parameters
  const Microbatch& batch;
  Mode mode;
  Kept& kept;
  Routing& routing;
  Losses& losses;

 private:
  friend class Sequence;
  PlainOperators plain_operators_;
};

/// One stage, as code on a frame: reads and writes tensors by name, keeps those of its table. Const and without state:
/// one object serves every microbatch.
class StageCode {
 protected:
  using enum model::TensorId;

 public:
  virtual ~StageCode() = default;

  /// Also runs in recomputes.
  virtual void forward(StageFrame& f) const = 0;
  /// Recomputes its output from kept tensors.
  virtual void rebuild(StageFrame& f) const;
  /// Computes the gradients of forward's inputs; leaves the inputs of backward_weight in `kept`.
  virtual void backward_input(StageFrame& f) const;
  /// Writes the gradients of the parameters, without reading values of parameters.
  virtual void backward_weight(StageFrame& f) const;
  /// Both in one op.
  virtual void backward(StageFrame& f) const;
  /// Completes a gradient with sums over the ranks of the tensor axis.
  virtual void finish_backward(StageFrame& f) const;
};

/// A stage of a model: its code, and the tensors that it keeps.
struct Layer {
  std::unique_ptr<StageCode> code;
  std::vector<model::TensorSpec> kept;
};

/// The layer of one stage of `model`, as its rank runs it. Sequences can have up to `max_seq_len` tokens.
/// loss_chunk_tokens: tokens whose logits exist at once, in the head; 0: chosen so that they stay in cache. device: of
/// its tensors.
[[nodiscard]] Layer make_layer(const model::Model& model, const model::Stage& stage, std::int64_t max_seq_len,
                               std::int64_t loss_chunk_tokens, at::Device device = at::kCPU);

}  // namespace trireme::nn

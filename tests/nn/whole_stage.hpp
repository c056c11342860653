// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "trireme/model/activations.hpp"
#include "trireme/nn/frame.hpp"

/// Calls of single stages, with tensors in place of a frame.
namespace trireme::nn {

struct Saved {
  std::vector<at::Tensor> tensors;
};

struct Result {
  at::Tensor hidden;
  kernels::LossSums loss{};
  at::Tensor device_loss{};
  std::vector<std::int64_t> expert_tokens{};
  double balance_loss = 0, router_z_loss = 0;
  at::Tensor device_router_losses{};
};

class WholeStage {
 public:
  WholeStage(const model::Stage& stage, const model::Sizes& sizes, std::int64_t max_seq_len,
             std::int64_t loss_chunk_tokens, at::Device device)
      : stage_(stage) {
    model_.sizes = model_.held = sizes;
    stage_.parameters.resize(model::roles_of(stage.kind, sizes.decoder).size());
    layer_ = make_layer(model_, stage_, max_seq_len, loss_chunk_tokens, device);
  }

  /// Fills `saved` in the modes that save; in a recompute it has the decisions.
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const {
    Call call(layer_);
    call.values.residual(schedule::Phase::forward) = std::move(hidden);
    const bool cached = mode == Mode::generate;
    if (!saved.tensors.empty())
      call.kept.put_saved(std::move(saved.tensors), cached ? model::Keep::kv_cache : model::Keep::input);
    saved.tensors.clear();
    {
      StageFrame f = call.frame(parameters, {}, microbatch, mode, schedule::Phase::forward);
      layer_.code->forward(f);
    }
    if (saves(mode) || mode == Mode::decide || cached) saved.tensors = call.kept.take_saved(keep_of(mode));
    if (mode == Mode::rebuild) return {};
    Result result = call.result(schedule::Phase::forward);
    const std::vector<std::int64_t>& begin = call.routing.rows.begin;
    for (std::size_t e = 0; e + 1 < begin.size(); ++e) result.expert_tokens.push_back(begin[e + 1] - begin[e]);
    return result;
  }

  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const {
    Call call(layer_);
    call.values.residual(schedule::Phase::backward) = std::move(d_hidden);
    call.kept.put_saved(std::move(saved.tensors));
    {
      StageFrame f = call.frame(parameters, grads, microbatch, Mode::train, schedule::Phase::backward);
      layer_.code->backward(f);
    }
    return call.result(schedule::Phase::backward);
  }

  Result backward_input(at::Tensor d_hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                        Saved& saved) const {
    Call call(layer_);
    call.values.residual(schedule::Phase::backward) = std::move(d_hidden);
    call.kept.put_saved(std::move(saved.tensors));
    {
      StageFrame f = call.frame(parameters, {}, microbatch, Mode::train, schedule::Phase::backward);
      layer_.code->backward_input(f);
    }
    saved.tensors = call.kept.take_pending();
    return call.result(schedule::Phase::backward);
  }
  void backward_weight(std::span<const Grad> grads, const Saved& saved) const {
    Call call(layer_);
    call.kept.put_pending(saved.tensors);
    const Microbatch none;
    StageFrame f = call.frame({}, grads, none, Mode::train, schedule::Phase::backward);
    layer_.code->backward_weight(f);
  }

 private:
  /// One call of a stage.
  struct Call {
    explicit Call(const Layer& layer) : kept(layer.kept) {}
    StageFrame frame(std::span<const at::Tensor> parameters, std::span<const Grad> grads, const Microbatch& microbatch,
                     Mode mode, schedule::Phase phase) {
      return {values,
              kept,
              {parameters, grads, microbatch, mode, routing, losses},
              {.reads = schedule::TensorSet(phase, {model::TensorId::residual}), .writes = {}},
              phase};
    }
    Result result(schedule::Phase phase) {
      return {.hidden = std::move(values.residual(phase)),
              .loss = losses.head,
              .device_loss = losses.head_on_device,
              .balance_loss = losses.balance,
              .router_z_loss = losses.router_z,
              .device_router_losses = losses.routers_on_device};
    }
    Values values;
    Kept kept;
    Routing routing;
    Losses losses;
  };

  static model::Keep keep_of(Mode mode) {
    switch (mode) {
      case Mode::train_keep_all: return model::Keep::all;
      case Mode::decide: return model::Keep::input;
      case Mode::generate: return model::Keep::kv_cache;
      default: return model::Keep::products;
    }
  }

  model::Model model_;
  model::Stage stage_;
  Layer layer_;
};

/// One call of a stage between exchanges.
struct ShardedCall {
  ShardedCall(const model::Model& model, const model::Stage& stage, at::Device device = at::kCPU)
      : layer(make_layer(model, stage, 32, 17, device)), kept(layer.kept) {}
  /// Calls `part` with a frame that may use `tensors`.
  void run(void (StageCode::*part)(StageFrame&) const, std::span<const at::Tensor> parameters,
           std::span<const Grad> grads, const Microbatch& m, Mode mode, schedule::Phase phase,
           schedule::TensorSet tensors) {
    StageFrame f(values, kept, {parameters, grads, m, mode, routing, losses}, {.reads = tensors, .writes = {}}, phase);
    ((*layer.code).*part)(f);
  }
  at::Tensor& operator[](schedule::TensorRef tensor) { return values[tensor]; }

  Layer layer;
  Kept kept;
  Values values;
  Routing routing;
  Losses losses;
};

inline std::unique_ptr<WholeStage> make_stage(const model::Stage& stage, const model::Sizes& sizes,
                                              std::int64_t max_seq_len, DType /*compute*/,
                                              std::int64_t loss_chunk_tokens, at::Device device = at::kCPU) {
  return std::make_unique<WholeStage>(stage, sizes, max_seq_len, loss_chunk_tokens, device);
}
inline std::unique_ptr<WholeStage> make_stage(model::StageKind kind, const model::Sizes& sizes,
                                              std::int64_t max_seq_len, DType compute, std::int64_t loss_chunk_tokens,
                                              at::Device device = at::kCPU) {
  return make_stage(model::Stage{.name = {}, .kind = kind, .parameters = {}}, sizes, max_seq_len, compute,
                    loss_chunk_tokens, device);
}

}  // namespace trireme::nn

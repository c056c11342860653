// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "nn/codes.hpp"
#include "nn/common.hpp"

namespace trireme::nn {
namespace {

using model::TensorId, schedule::Phase;

/// All tensors: the stages of a sublayer run on one lane.
const schedule::TensorAccess& every_tensor() {
  static const schedule::TensorAccess all = [] {
    schedule::TensorAccess access;
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::again, Phase::recompute})
      for (int id = 0; id < model::tensor_ids; ++id) access.reads.add({static_cast<TensorId>(id), phase});
    return access;
  }();
  return all;
}

model::Keep keep_of(Mode mode) { return mode == Mode::train_keep_all ? model::Keep::all : model::Keep::products; }

/// x + post_norm(branch(norm(x))), where each norm is as the decoder specifies: the stages of a sublayer, one after the
/// other. Parameters: of the norm, of the branch, of post_norm.
class Sublayer final : public Stage {
 public:
  Sublayer(const model::Stage& stage, const model::Sizes& sizes, std::int64_t max_seq_len, at::Device device)
      : hidden_(sizes.hidden),
        has_norm_(sizes.decoder.pre_norm),
        table_(model::kept_tensors(stage.kind, sizes)),
        norms_(model::norm_parameters(sizes.decoder)) {
    if (has_norm_)
      input_ = std::make_unique<NormCode>(sizes);
    else
      input_ = std::make_unique<InputCode>();
    if (sizes.decoder.post_norm) post_norm_ = std::make_unique<PostNormCode>(sizes);
    const TensorId result = post_norm_ ? TensorId::branch_output : TensorId::residual;
    if (stage.kind == model::StageKind::attention)
      branch_ = std::make_unique<AttentionCode>(sizes, stage, max_seq_len, true, Output{result, result}, device);
    else
      branch_ = std::make_unique<MlpCode>(sizes.decoder, true, stage.fp8, Output{result, result});
  }

  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override {
    const PlainOperators guard;
    expect_call(hidden, microbatch, hidden_, parameters.size(), parameters.size());
    Values values;
    Kept kept(table_);
    values.residual(Phase::forward) = std::move(hidden);
    if (mode == Mode::generate && !saved.tensors.empty())
      kept.put_saved(std::exchange(saved.tensors, {}), model::Keep::kv_cache);
    const auto run = [&](const StageCode& stage, std::span<const at::Tensor> of_stage, Mode of_call) {
      StageFrame f(values, kept, {of_stage, {}, microbatch, of_call}, every_tensor(), Phase::forward);
      stage.forward(f);
    };
    run(*input_, before(parameters), mode);
    if (has_norm_) kept[TensorId::normed] = values[{TensorId::normed, Phase::forward}];
    // The input of the second norm is saved, so a rebuild needs it as well.
    run(*branch_, between(parameters), post_norm_ && mode == Mode::rebuild ? Mode::train : mode);
    if (post_norm_) run(*post_norm_, after(parameters), mode);
    if (saves(mode)) saved.tensors = kept.take_saved(keep_of(mode));
    if (mode == Mode::generate) saved.tensors = kept.take_saved(model::Keep::kv_cache);
    if (mode == Mode::rebuild) return {};
    return {.hidden = std::move(values.residual(Phase::forward))};
  }

  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override {
    Result result = backward_input(std::move(d_hidden), parameters, microbatch, saved);
    backward_weight(grads, saved);
    return result;
  }

  Result backward_input(at::Tensor d_hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                        Saved& saved) const override {
    const PlainOperators guard;
    expect_call(d_hidden, microbatch, hidden_, parameters.size(), parameters.size());
    Values values;
    Kept kept(table_);
    values.residual(Phase::backward) = std::move(d_hidden);
    kept.put_saved(std::move(saved.tensors));
    const auto frame = [&](std::span<const at::Tensor> of_stage, Phase phase) {
      return StageFrame(values, kept, {of_stage, {}, microbatch}, every_tensor(), phase);
    };
    const auto run = [&](const StageCode& stage, std::span<const at::Tensor> of_stage) {
      StageFrame f = frame(of_stage, Phase::backward);
      stage.backward_input(f);
    };
    if (post_norm_) run(*post_norm_, after(parameters));
    run(*branch_, between(parameters));
    if (has_norm_ && !kept[TensorId::normed].defined()) {
      StageFrame f = frame(before(parameters), Phase::again);
      input_->rebuild(f);
      kept[TensorId::normed] = f.take(TensorId::normed);
    }
    run(*input_, before(parameters));
    saved.tensors = kept.take_pending();
    return {.hidden = std::move(values.residual(Phase::backward))};
  }

  void backward_weight(std::span<const Grad> grads, const Saved& saved) const override {
    const PlainOperators guard;
    Values values;
    Kept kept(table_);
    kept.put_pending(saved.tensors);
    values[{TensorId::normed, Phase::again}] = kept[has_norm_ ? TensorId::normed : TensorId::x];
    const Microbatch none;
    const auto run = [&](const StageCode& stage, std::span<const Grad> of_stage) {
      StageFrame f(values, kept, {{}, of_stage, none}, every_tensor(), Phase::backward);
      stage.backward_weight(f);
    };
    run(*input_, before(grads));
    if (post_norm_) run(*post_norm_, after(grads));
    run(*branch_, between(grads));
  }

 private:
  template <class T>
  [[nodiscard]] std::span<const T> before(std::span<const T> all) const {
    return all.first(has_norm_ ? norms_ : 0);
  }
  template <class T>
  [[nodiscard]] std::span<const T> after(std::span<const T> all) const {
    return all.last(post_norm_ ? norms_ : 0);
  }
  template <class T>
  [[nodiscard]] std::span<const T> between(std::span<const T> all) const {
    return all.subspan(before(all).size(), all.size() - before(all).size() - after(all).size());
  }

  std::int64_t hidden_;
  bool has_norm_;
  std::vector<model::TensorSpec> table_;
  std::size_t norms_;  ///< parameters of a norm
  std::unique_ptr<StageCode> input_, branch_, post_norm_;
};

}  // namespace

std::unique_ptr<Stage> make_sublayer(const model::Stage& stage, const model::Sizes& sizes, std::int64_t max_seq_len,
                                     at::Device device) {
  return std::make_unique<Sublayer>(stage, sizes, max_seq_len, device);
}

}  // namespace trireme::nn

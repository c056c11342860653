// SPDX-License-Identifier: Apache-2.0
// The code of each stage of a model.
#include <utility>

#include "nn/codes.hpp"
#include "trireme/base/error.hpp"

namespace trireme::nn {

void StageCode::rebuild(StageFrame& /*f*/) const { throw BugError("a stage of this kind is not rebuilt"); }

void StageCode::backward_input(StageFrame& /*f*/) const {
  throw BugError("a stage of this kind does not split its backward");
}

void StageCode::backward_weight(StageFrame& /*f*/) const {
  throw BugError("a stage of this kind does not split its backward");
}

void StageCode::backward(StageFrame& f) const {
  backward_input(f);
  f.kept.keep_pending();
  backward_weight(f);
}

void StageCode::finish_backward(StageFrame& /*f*/) const {
  throw BugError("the gradients of a stage of this kind need no sums");
}

/// Stages that run one after the other in one op, on its parameters. The tensors between them are local.
class Sequence final : public StageCode {
 public:
  struct Piece {
    std::unique_ptr<StageCode> code;
    std::size_t parameters;  ///< their number
  };
  /// norms_output: the last piece keeps the output of the one before it, so that a rebuild computes that.
  Sequence(std::vector<Piece> pieces, bool norms_output) : pieces_(std::move(pieces)), norms_output_(norms_output) {}

  void forward(StageFrame& f) const override {
    run(f, false, [&](const StageCode& code) {
      const Mode mode = f.mode;
      if (norms_output_ && mode == Mode::rebuild && &code != pieces_.back().code.get()) f.mode = Mode::train;
      code.forward(f);
      f.mode = mode;
    });
  }
  void backward_input(StageFrame& f) const override {
    run(f, true, [&](const StageCode& code) { code.backward_input(f); });
  }
  void backward_weight(StageFrame& f) const override {
    run(f, false, [&](const StageCode& code) { code.backward_weight(f); });
  }

 private:
  /// Calls `each` for every piece, with the parameters of that piece in the frame.
  template <class Each>
  void run(StageFrame& f, bool from_last, const Each& each) const {
    Values local;
    f.set_local(&local);
    const std::span<const at::Tensor> parameters = f.parameters;
    const std::span<const Grad> gradients = f.gradients;
    const auto part = [](auto all, std::size_t first, std::size_t count) {
      return all.empty() ? all : all.subspan(first, count);
    };
    const auto narrowed = [&](const Piece& piece, std::size_t first) {
      f.parameters = part(parameters, first, piece.parameters);
      f.gradients = part(gradients, first, piece.parameters);
      each(*piece.code);
    };
    std::size_t first = 0;
    if (from_last) {
      for (const Piece& piece : pieces_) first += piece.parameters;
      for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece)
        narrowed(*piece, first -= piece->parameters);
    } else {
      for (const Piece& piece : pieces_) narrowed(piece, std::exchange(first, first + piece.parameters));
    }
    f.parameters = parameters;
    f.gradients = gradients;
    f.set_local(nullptr);
  }

  std::vector<Piece> pieces_;
  bool norms_output_;
};

namespace {

/// Makes the codes of the stages of a model.
struct Maker {
  const model::Model& model;
  std::int64_t max_seq_len, loss_chunk_tokens;
  at::Device device;

  [[nodiscard]] std::unique_ptr<StageCode> operator()(const model::Stage& stage) const {
    using model::StageKind;
    switch (stage.kind) {
      case StageKind::embedding: return make_embedding_code(model, stage);
      case StageKind::positions: return make_positions_code(model);
      case StageKind::norm: return std::make_unique<NormCode>(model.sizes);
      case StageKind::post_norm: return std::make_unique<PostNormCode>(model.sizes);
      case StageKind::input: return std::make_unique<InputCode>();
      case StageKind::attention:
      case StageKind::mlp: return sublayer(stage);
      case StageKind::mlp_branch:
        return std::make_unique<MlpCode>(model.sizes.decoder, model.part.rank == 0, stage.fp8,
                                         Output{model::result_of(stage), model::upstream_of(stage)});
      case StageKind::head:
      case StageKind::logits: return make_head_code(model, stage, loss_chunk_tokens, device);
      case StageKind::moe: return with_norm(stage, {StageKind::route, StageKind::experts, StageKind::merge});
      case StageKind::route: return with_norm(stage, {StageKind::route});
      case StageKind::experts:
      case StageKind::merge: return make_expert_code(model, stage, stage.kind);
      default: return make_attention_code(model, stage, max_seq_len, device);
    }
  }

  /// x + post_norm(branch(norm(x))), where each norm is as the decoder specifies.
  [[nodiscard]] std::unique_ptr<StageCode> sublayer(const model::Stage& stage) const {
    std::vector<Sequence::Piece> pieces;
    for (model::Stage& piece : model::pieces_of(stage, model.sizes.decoder)) {
      piece.enter = piece.leave = std::nullopt;
      pieces.push_back({(*this)(piece), piece.parameters.size()});
    }
    return std::make_unique<Sequence>(std::move(pieces), model.sizes.decoder.post_norm);
  }

  /// The norm of a layer of experts and the stages behind it.
  [[nodiscard]] std::unique_ptr<StageCode> with_norm(const model::Stage& stage,
                                                     std::initializer_list<model::StageKind> kinds) const {
    const model::Decoder& decoder = model.sizes.decoder;
    invariant(decoder.pre_norm && !decoder.post_norm && decoder.residual_scale == 1 &&
                  decoder.activation == model::Activation::swiglu,
              "experts are SwiGLU networks whose input is normed and whose output is not");
    const std::size_t norms = model::norm_parameters(decoder);
    const std::size_t of_experts = stage.kind == model::StageKind::moe ? 3 * decoder.experts->count : 0;
    std::vector<Sequence::Piece> pieces;
    pieces.push_back({std::make_unique<NormCode>(model.sizes), norms});
    for (const model::StageKind kind : kinds)
      pieces.push_back({make_expert_code(model, stage, kind), kind == model::StageKind::route
                                                                  ? stage.parameters.size() - norms - of_experts
                                                              : kind == model::StageKind::experts ? of_experts
                                                                                                  : 0});
    return std::make_unique<Sequence>(std::move(pieces), false);
  }
};

}  // namespace

Layer make_layer(const model::Model& model, const model::Stage& stage, std::int64_t max_seq_len,
                 std::int64_t loss_chunk_tokens, at::Device device) {
  return {.code = Maker{model, max_seq_len, loss_chunk_tokens, device}(stage),
          .kept = model::kept_tensors(stage.kind, model.held)};
}

}  // namespace trireme::nn

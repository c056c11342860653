// SPDX-License-Identifier: Apache-2.0
// The embedding and learned positions.
#include "trireme/kernels/embedding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/BFloat16.h>

#include <cmath>

#include "nn/codes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/vocabulary.hpp"

namespace trireme::nn {
namespace {

/// Factor of the embedding of a decoder. width: of the residual stream.
class EmbeddingScale {
 public:
  EmbeddingScale(const model::Decoder& decoder, std::int64_t width)
      : scale_(decoder.embedding_root ? std::sqrt(static_cast<double>(width)) : decoder.embedding_scale),
        rounded_(decoder.embedding_root) {}
  void apply(const at::Tensor& hidden) const {
    if (scale_ != 1) hidden.mul_(in(hidden.scalar_type()));
  }
  /// The gradient before it; a new tensor unless the scale is 1.
  [[nodiscard]] at::Tensor backward(const at::Tensor& d_hidden) const {
    return scale_ == 1 ? d_hidden : d_hidden * in(d_hidden.scalar_type());
  }

 private:
  [[nodiscard]] double in(at::ScalarType type) const {
    return rounded_ && type == at::kBFloat16 ? static_cast<float>(c10::BFloat16(static_cast<float>(scale_))) : scale_;
  }
  double scale_;
  bool rounded_;  ///< to the compute type
};

/// hidden[n] = scale embed_tokens[inputs[n]]: where ranks share the vocabulary, this rank's term of the sum over the
/// tensor axis. Parameters: {embed_tokens [vocab, D]}. Keeps nothing: backward needs only the token ids.
class EmbeddingCode final : public StageCode {
 public:
  EmbeddingCode(const model::Model& model, const model::Stage& stage)
      : is_part_(model::is_partitioned(stage)),
        part_(model::vocabulary_part(model.sizes.vocab, model.part)),
        scale_(model.sizes.decoder, model.sizes.hidden),
        upstream_(model::upstream_of(stage)) {}

  void forward(StageFrame& f) const override {
    const at::Tensor table = table_of(f.parameters[0]);
    at::Tensor out = at::empty({f.batch.inputs.size(0), table.size(1)}, table.options());
    if (is_part_)
      kernels::embedding_gather_part(f.batch.inputs, part_.first, table, out);
    else
      kernels::embedding_gather(f.batch.inputs, table, out);
    scale_.apply(out);
    if (is_part_) f[residual].reset();
    f[is_part_ ? branch_output : residual] = std::move(out);
  }

  void backward(StageFrame& f) const override {
    const at::Tensor d_out = scale_.backward(f.upstream(upstream_));
    const Grad grad{.tensor = table_of(f.gradients[0].tensor), .accumulate = f.gradients[0].accumulate};
    if (is_part_)
      kernels::embedding_scatter_add_part(f.batch.inputs, part_.first, d_out, grad);
    else
      kernels::embedding_scatter_add(f.batch.inputs, d_out, grad);
    f.free(residual);
  }

 private:
  [[nodiscard]] at::Tensor table_of(const at::Tensor& held) const {
    return is_part_ ? held.narrow(0, 0, part_.count) : held;
  }

  bool is_part_;
  model::VocabularyPart part_;
  EmbeddingScale scale_;
  model::TensorId upstream_;
};

/// y[n] = x[n] + positions[place of n in its sequence] for the tokens n of the residual stream, after the past ones:
/// all of the microbatch, or under sequence parallelism those of this rank. Parameters: {positions [longest sequence,
/// D]}. Keeps nothing.
class PositionsCode final : public StageCode {
 public:
  explicit PositionsCode(const model::TensorPart& part)
      : part_(part.sequence_parallel ? part.rank : 0), context_(part.context) {}

  void forward(StageFrame& f) const override {
    invariant(f.batch.past + f.batch.seq_len * context_.ranks <= f.parameters[0].size(0),
              "a sequence is longer than there are learned positions");
    const at::Tensor& x = f[residual];
    at::Tensor out = at::empty_like(x);
    kernels::embedding_gather(positions_of(x.size(0), f.batch, x.device()), f.parameters[0], out);
    f[residual] = out.add_(x);
  }
  void backward(StageFrame& f) const override {
    const at::Tensor& d = f[residual];
    kernels::embedding_scatter_add(positions_of(d.size(0), f.batch, d.device()), d, f.gradients[0]);
  }

 private:
  /// int32 [count]: the position of each token here in its sequence.
  [[nodiscard]] at::Tensor positions_of(std::int64_t count, const Microbatch& m, at::Device device) const {
    const std::int64_t first = part_ * count;
    if (device.is_cuda()) {
      at::Tensor ids =
          at::arange(first, first + count, at::TensorOptions(device).dtype(at::kInt)).remainder_(m.seq_len);
      if (context_.ranks == 1) return ids.add_(m.past);
      const std::int64_t whole = m.seq_len * context_.ranks, run = context_.run(whole);
      const std::int64_t gap = context_.second_run(whole) - context_.first_run(whole) - run;  // between the two runs
      return ids.add_(ids.ge(run).to(at::kInt).mul_(gap)).add_(context_.first_run(whole));
    }
    at::Tensor ids = at::empty({count}, at::kInt);
    auto* id = ids.mutable_data_ptr<std::int32_t>();
    for (std::int64_t i = 0; i < count; ++i)
      id[i] =
          static_cast<std::int32_t>(m.past + context_.position((first + i) % m.seq_len, m.seq_len * context_.ranks));
    return ids;
  }

  int part_;  ///< of the residual stream: the first token here is part_ times as many as there are here
  model::ContextPart context_;
};

}  // namespace

std::unique_ptr<StageCode> make_embedding_code(const model::Model& model, const model::Stage& stage) {
  return std::make_unique<EmbeddingCode>(model, stage);
}

std::unique_ptr<StageCode> make_positions_code(const model::Model& model) {
  return std::make_unique<PositionsCode>(model.part);
}

}  // namespace trireme::nn

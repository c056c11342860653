// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "support/reference/plain_fp8.hpp"
#include "trireme/config/run_config.hpp"

/// The plain program: the oracle of the distributed one. One process, whole parameters, libtorch's own operators under
/// its autograd, written from the definitions (Hugging Face's Llama and GPT-2, torch.optim.AdamW and Muon,
/// docs/numerics.md) and not from Trireme's code.
namespace trireme::test {

/// Parameters in full by Hugging Face name: fp32, or fp64 to see what rounding does.
using Parameters = std::map<std::string, at::Tensor>;

/// Attention mask of hidden positions, bool [B, 1, T, T] (query, key): later ones and, with `document_end`, those of
/// other documents. tokens: [B, T] int64.
[[nodiscard]] at::Tensor plain_unseen(const at::Tensor& tokens, std::optional<std::int64_t> document_end = {});

/// Losses of the routers of all layers, with their graph.
struct PlainRouter {
  at::Tensor balance = at::zeros({}, at::kDouble);        ///< the mean over sequences of the sequence-wise balance loss
  at::Tensor squared_log_z = at::zeros({}, at::kDouble);  ///< the mean over tokens of log(Z)^2 of the router's logits
  double margin = std::numeric_limits<double>::infinity();  ///< smallest, of a token's last chosen expert
  std::map<std::string, at::Tensor> loads{};                ///< tokens of each expert, by the name of a correction bias
};

/// Output of a layer's experts for h [B, T, D]: all experts compute every token, with weight 0 unless chosen. layer:
/// prefix of its tensors' names. router: its losses are added there; may be null.
[[nodiscard]] at::Tensor plain_experts(const config::Model& model, const Parameters& parameters,
                                       const std::string& layer, const at::Tensor& h, PlainRouter* router,
                                       const PlainFp8& fp8 = {});

/// The logits of the model's architecture: [B, T, vocab]. tokens: [B, T] int64. unseen: plain_unseen.
[[nodiscard]] at::Tensor plain_logits(const config::Model& model, const Parameters& parameters,
                                      const at::Tensor& tokens, const at::Tensor& unseen, PlainRouter* router = nullptr,
                                      const PlainFp8& fp8 = {});
[[nodiscard]] inline at::Tensor plain_logits(const config::Model& model, const Parameters& parameters,
                                             const at::Tensor& tokens) {
  return plain_logits(model, parameters, tokens, plain_unseen(tokens));
}

[[nodiscard]] at::Tensor plain_gpt2_logits(const config::Model& model, const Parameters& parameters,
                                           const at::Tensor& tokens, const at::Tensor& unseen,
                                           const PlainFp8& fp8 = {});

/// The rows of one optimizer step over the whole job: int64, [batch.global, seq_len] each; targets -1 if they do not
/// count.
struct PlainBatch {
  at::Tensor inputs;
  at::Tensor targets;
  at::Tensor unseen;  ///< plain_unseen
};

/// The batches of the run file's steps, one after the other. Reads uint16 token files, raw or with an index of
/// Megatron's.
class PlainData {
 public:
  explicit PlainData(const config::RunConfig& config);
  [[nodiscard]] PlainBatch step(std::int64_t step) const;

 private:
  [[nodiscard]] std::int64_t sample_of(std::int64_t k) const;
  /// Adds the samples of a packed file. mask: a byte for each token, or none. documents: of each token.
  void pack(const std::vector<std::int64_t>& tokens, const std::vector<char>& mask,
            const std::vector<std::int64_t>& documents);

  config::RunConfig config_;
  std::vector<std::vector<std::int64_t>> samples_;  ///< of all files, [seq_len + 1] each
  std::vector<std::vector<std::int64_t>> targets_;  ///< of each sample, [seq_len]: -1 if a mask has a 0
  std::vector<std::vector<std::int64_t>>
      documents_;                    ///< of each sample's inputs, [seq_len]: the number of its document
  std::vector<std::int64_t> order_;  ///< of the samples used so far; empty: the files' own
};

/// Means over the batch's counted targets, fp64, with their graph.
struct PlainLoss {
  at::Tensor cross_entropy;
  at::Tensor squared_log_z;  ///< of log(Z)^2, Z the sum of exp(logit)
  PlainRouter router;
};
[[nodiscard]] PlainLoss plain_loss(const config::Model& model, const Parameters& parameters, const PlainBatch& batch,
                                   const PlainFp8& fp8 = {});

/// The learning rate of step `step`, from 0.
[[nodiscard]] double plain_learning_rate(const config::RunConfig& config, std::int64_t step);

/// Results of a run: for each step the loss (cross-entropy), the gradient norm before clipping, and the z-loss.
struct Curve {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::vector<double> z_losses;
  std::vector<double> router_losses{};  ///< weighted
  /// For the plain program: the smallest distance between the logits of a token's last chosen expert and the first one
  /// not chosen. If it is within rounding, another program may choose differently.
  double router_margin = std::numeric_limits<double>::infinity();
  friend bool operator==(const Curve&, const Curve&) = default;
};

/// Trains `steps` steps from `initial`, which stays as it is. The steps in `skipped` use up their data and learning
/// rate only, and so do steps without a target that counts, whose loss is NaN. Products are in fp8 where the run file
/// sets it, divided as its tensor ranks divide them, moments are rounded to bf16 where it does; everything else is in
/// the type of `initial`.
[[nodiscard]] Curve plain_train(const config::RunConfig& config, const Parameters& initial, int steps,
                                const std::set<int>& skipped = {});

}  // namespace trireme::test

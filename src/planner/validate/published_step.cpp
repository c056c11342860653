// SPDX-License-Identifier: Apache-2.0
// A step of another trainer by closed formulas (Rajbhandari et al. 2020, Narayanan et al. 2021).
#include <algorithm>
#include <cmath>

#include "trireme/planner/validate/published.hpp"

namespace trireme::planner {
namespace {

constexpr double forward_part = 0.4;  ///< of bytes and of launches

class Step {
 public:
  Step(const PublishedRow& row, const Machine& machine, const Trainer& trainer)
      : r_(row), m_(machine), t_(trainer), tokens_(row.tokens()), width_(row.hidden) {}

  /// 1F1B: every microbatch takes a slot of the slowest pipeline rank, and the first one passes each other rank, too.
  [[nodiscard]] double seconds() const {
    const Deal deal = dealt();
    const double backward = deal.layers * phase(false) + deal.head * head() * 2 / 3;
    const double slowest = slot(deal) + edges();
    const double every = slot({.layers = r_.layers, .head = 1}) + r_.pipeline * edges();
    const double filling = r_.pipeline > 1 ? (every - slowest) / r_.chunks : 0;
    return r_.accumulation * slowest + filling + reduction(deal, backward) + update(deal) +
           (t_.step_seconds > 0 ? t_.step_seconds : m_.step_seconds);
  }

 private:
  /// Part of the model that a pipeline rank computes.
  struct Deal {
    double layers = 0;
    double head = 1;
  };
  /// Seconds that it computes for a microbatch.
  [[nodiscard]] double slot(const Deal& deal) const {
    return deal.layers * (phase(true) + phase(false)) + deal.head * head() +
           t_.software.kernels.accumulate * parameters(deal) / m_.memory_bandwidth;
  }
  /// Seconds that it sends and receives for a microbatch.
  [[nodiscard]] double edges() const {
    return r_.pipeline > 1 ? 2 * (t_.p2p_seconds + tokens_ * width_ * 2 / r_.tensor / edge_bandwidth()) : 0;
  }
  /// The slowest rank's. Layers dealt by cost: the last rank has the head, too. Evenly where ranks run several chunks.
  [[nodiscard]] Deal dealt() const {
    if (r_.pipeline == 1 || r_.chunks > 1) return {.layers = r_.layers / r_.pipeline};
    const double layer = phase(true) + phase(false);
    double best = 1e300;
    Deal out;
    for (double last = 0; last <= r_.layers / r_.pipeline; ++last) {
      const double others = std::ceil((r_.layers - last) / (r_.pipeline - 1));
      const double with_head = last * layer + head();
      if (std::max(others * layer, with_head) >= best) continue;
      best = std::max(others * layer, with_head);
      out = others * layer >= with_head ? Deal{.layers = others, .head = 0} : Deal{.layers = last, .head = 1};
    }
    return out;
  }

  [[nodiscard]] double layer_elements() const {
    return (2 + 2 * r_.kv_heads / r_.heads) * width_ * width_ + (r_.gated ? 3 : 2) * width_ * r_.intermediate;
  }
  /// Parameters of one rank.
  [[nodiscard]] double parameters(const Deal& deal) const {
    const double embeddings = r_.pipeline > 1 ? (deal.head > 0 ? 1 : 0) : r_.tied ? 1 : 2;
    return (deal.layers * layer_elements() + embeddings * r_.vocab * width_) / r_.tensor;
  }

  [[nodiscard]] double rate(double flops) const { return product_rate(m_, flops, DType::bf16); }

  [[nodiscard]] double phase(bool forward) const {
    const double products = 2 * tokens_ * layer_elements() / r_.tensor;
    const double attention = 2 * tokens_ * r_.seq_len * width_ / r_.tensor /
                             attention_rate(m_, static_cast<std::int64_t>(width_ / r_.heads), DType::bf16);
    const Kernels& k = t_.software.kernels;
    const double bytes =
        tokens_ *
        (2 * k.norm * width_ + k.projections * width_ + (r_.gated ? 1 : 10.0 / 34) * k.activation * r_.intermediate) /
        r_.tensor * (forward ? forward_part : 1 - forward_part);
    const double kernels = products * (forward ? 1 : 2) / rate(products / 7) + attention * (forward ? 1 : 2.5 / 0.8) +
                           bytes / m_.memory_bandwidth;
    const double host = (forward ? forward_part : 1 - forward_part) * host_seconds();
    const double again = !forward && r_.again == ComputedAgain::blocks ? kernels / 3 / r_.again_every : 0;
    return std::max(kernels + again + tensor_seconds(forward) * (1 - t_.tensor_hidden), host);
  }
  [[nodiscard]] double host_seconds() const {
    const double launches = r_.tensor > 1 ? t_.layer_seconds : 0;
    return r_.pipeline > 1 ? launches + t_.stage_layer_seconds * r_.tensor : launches;
  }
  /// Two gathers and two scatters forward; backward gathers the inputs again.
  [[nodiscard]] double tensor_seconds(bool forward) const {
    return (forward ? 4 : 6) * ring(group(r_.tensor, 1), tokens_ * width_ * 2);
  }

  [[nodiscard]] double head() const {
    const double flops = 2 * tokens_ * width_ * r_.vocab / r_.tensor;
    return 3 * flops / rate(flops) + t_.software.kernels.logit * tokens_ * r_.vocab / r_.tensor / m_.memory_bandwidth;
  }

  [[nodiscard]] Group group(double ranks, double stride) const {
    return group_of(static_cast<int>(ranks), static_cast<int>(stride), static_cast<int>(m_.gpus_per_node));
  }
  [[nodiscard]] double ring(const Group& group, double bytes, double calls = 1) const {
    if (group.ranks == 1) return 0;
    Machine machine = m_;
    if (t_.latency > 0) machine.inside.latency = machine.between.latency = t_.latency;
    return ring_seconds(machine, group, bytes / calls) * calls;
  }
  [[nodiscard]] double edge_bandwidth() const {
    return r_.dp * r_.tensor < m_.gpus_per_node ? m_.inside.bandwidth : m_.between.bandwidth / m_.gpus_per_node;
  }

  /// ZeRO-0: an all-reduce concurrent with the backward of the last microbatch. ZeRO-1: a reduce-scatter after it, and
  /// an all-gather of the new parameters.
  [[nodiscard]] double reduction(const Deal& deal, double backward) const {
    const Group dp = group(r_.dp, r_.tensor);
    const double calls = std::max(1.0, t_.calls_per_layer * deal.layers), size = parameters(deal);
    const double scatter = ring(dp, 4 * size, calls);
    if (r_.sharding == Sharding::zero1) return scatter + ring(dp, 2 * size, calls);
    const double hidden = r_.tensor > 1 ? backward : zero0_hidden * backward;
    return std::max(0.0, 2 * scatter - hidden);
  }
  static constexpr double zero0_hidden = 0.5;  ///< with TP = 1

  [[nodiscard]] double update(const Deal& deal) const {
    const double shards = r_.sharding == Sharding::zero1 ? r_.dp : 1;
    return t_.software.kernels.update * parameters(deal) / shards / m_.memory_bandwidth;
  }

  const PublishedRow& r_;
  const Machine& m_;
  const Trainer& t_;
  double tokens_, width_;
};

}  // namespace

Trainer trainer_of(const PublishedRow& row) {
  const auto is = [&](const char* name) { return row.framework.find(name) != std::string::npos; };
  Trainer trainer{.software = {.kernels = {}, .ring_reduce_scatter = true, .updates_beside = false}};
  if (!row.fused_kernels())  // eager PyTorch: every kernel reads and writes memory
    trainer.software.kernels = {.norm = 22, .projections = 70, .activation = 34, .logit = 40};
  if (is("nanotron")) {  // fitted with h100-efa on half of its rows
    trainer.latency = 25e-6;
    trainer.layer_seconds = 4.27e-3;
    trainer.stage_layer_seconds = 2.2e-3;
    trainer.p2p_seconds = 0.7e-3;
    trainer.step_seconds = 12e-3;
    trainer.calls_per_layer = 6;
  }
  if (is("Megatron")) {
    trainer.tensor_hidden = 0.5;
    trainer.software.kernels.accumulate = 0;  // within the products
  }
  return trainer;
}

double published_step(const PublishedRow& row, const Machine& machine, const Trainer& trainer) {
  return Step(row, machine, trainer).seconds();
}

}  // namespace trireme::planner

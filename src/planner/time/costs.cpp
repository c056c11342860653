// SPDX-License-Identifier: Apache-2.0
// The rates behind the costs: products, attention, collectives.
#include "trireme/planner/time/costs.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::planner {

Group group_of(int ranks, int stride, int gpus_per_node) {
  if (ranks * stride <= gpus_per_node) return {.ranks = ranks, .per_node = ranks, .sharing = 1};
  return {.ranks = ranks,
          .per_node = std::clamp(gpus_per_node / stride, 1, ranks),
          .sharing = std::clamp(stride, 1, gpus_per_node)};
}

namespace {

double link_seconds(const Link& link, const Group& group, double seconds) {
  return link.latency + link.rank_latency * (group.ranks - 1) + seconds;
}

}  // namespace

double ring_seconds(const Machine& machine, const Group& group, double bytes) {
  if (group.ranks == 1) return 0;
  const double sent = bytes * (group.ranks - 1) / group.ranks;
  if (!group.crosses_nodes()) return link_seconds(machine.inside, group, sent / machine.inside.bandwidth);
  const double bandwidth = std::min(machine.inside.bandwidth, machine.between.bandwidth / group.sharing);
  return link_seconds(machine.between, group, sent / bandwidth);
}

double all_to_all_seconds(const Machine& machine, const Group& group, double bytes) {
  if (!group.crosses_nodes()) return ring_seconds(machine, group, bytes);
  const double away = bytes * (group.ranks - group.per_node) / group.ranks * group.per_node;
  const double inside = bytes * (group.per_node - 1) / group.ranks;
  const double seconds =
      std::max(away / (machine.between.bandwidth / group.sharing), inside / machine.inside.bandwidth);
  return link_seconds(machine.between, group, seconds);
}

double product_rate(const Machine& machine, double flops, DType type) {
  const auto& rates = machine.products;
  const auto above =
      std::find_if(rates.begin(), rates.end(), [&](const ProductRate& rate) { return rate.flops >= flops; });
  const double factor = type == DType::fp32 ? machine.fp32_factor : 1;
  if (above == rates.end()) return rates.back().rate * factor;
  if (above == rates.begin()) return above->rate * factor;
  const ProductRate& below = *(above - 1);
  const double along = std::log(flops / below.flops) / std::log(above->flops / below.flops);
  return below.rate * std::pow(above->rate / below.rate, along) * factor;
}

std::vector<double> newton_schulz_seconds(const Machine& machine, std::span<const optimizer::Matrix> matrices,
                                          int ranks, DType type) {
  std::vector<double> seconds(static_cast<std::size_t>(ranks));
  for (const optimizer::Matrix& matrix : matrices) {
    const auto small = static_cast<double>(std::min(matrix.rows, matrix.columns)),
               large = static_cast<double>(std::max(matrix.rows, matrix.columns));
    seconds[static_cast<std::size_t>(matrix.owner)] +=
        optimizer::newton_schulz_flops(matrix) / product_rate(machine, 2 * small * small * large, type);
  }
  return seconds;
}

double attention_rate(const Machine& machine, std::int64_t head_dim, DType type) {
  const auto d = static_cast<double>(head_dim);
  return machine.attention_flops * d / (d + attention_half) * (type == DType::fp32 ? machine.fp32_factor : 1);
}

}  // namespace trireme::planner

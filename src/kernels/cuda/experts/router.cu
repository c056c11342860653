// SPDX-License-Identifier: Apache-2.0
//
// Routers: a warp for each token. Scores are fp64, as on the host, so that both choose the same experts.
#include <cmath>

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/experts/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

constexpr int warp_lanes = 32;
constexpr int router_warps = 8;  ///< of a block, where each has a token

__device__ inline double sum_over_warp(double value) {
  for (int step = warp_lanes / 2; step > 0; step /= 2) value += from_lane(value, step);
  return value;
}

__device__ inline int lane_here() { return static_cast<int>(threadIdx.x) % warp_lanes; }

/// The largest of some logits, and the sum of the exponentials of the others.
struct Partition {
  double largest, sum;
  __device__ double share(float logit) const { return exp(static_cast<double>(logit) - largest) / sum; }
};

__device__ inline Partition partition_of(const float* logits, int count) {
  double largest = -static_cast<double>(INFINITY);
  for (int e = lane_here(); e < count; e += warp_lanes) largest = fmax(largest, static_cast<double>(logits[e]));
  for (int step = warp_lanes / 2; step > 0; step /= 2) largest = fmax(largest, from_lane(largest, step));
  double sum = 0;
  for (int e = lane_here(); e < count; e += warp_lanes) sum += exp(static_cast<double>(logits[e]) - largest);
  return {largest, sum_over_warp(sum)};
}

__device__ inline double sigmoid_of(float x) { return 1 / (1 + exp(-static_cast<double>(x))); }

__device__ inline double score_of(float logit, const Router& router, const Partition& partition) {
  return router.sigmoid ? sigmoid_of(logit) : partition.share(logit);
}

/// Divisor of a token's weights.
__device__ inline double weight_divisor(const float* logits, const std::int32_t* chosen, const Router& router,
                                        const Partition& partition) {
  if (!router.normalized) return 1;
  double sum = 0;
  for (int j = 0; j < router.per_token; ++j) sum += score_of(logits[chosen[j]], router, partition);
  return sum;
}

/// A candidate; expert -1: none.
struct Candidate {
  double value;
  int expert;
};
__device__ inline Candidate better(Candidate a, Candidate b) {
  if (a.expert < 0) return b;
  if (b.expert < 0) return a;
  return a.value > b.value || (a.value == b.value && a.expert < b.expert) ? a : b;
}

/// Puts `expert` among the first `count` chosen ones, in rising order.
__device__ inline void insert(std::int32_t* chosen, int count, int expert) {
  int at = count;
  for (; at > 0 && chosen[at - 1] > expert; --at) chosen[at] = chosen[at - 1];
  chosen[at] = expert;
}

/// The sum of the two largest of n values.
__device__ inline double two_best(const double* values, int n) {
  double first = -static_cast<double>(INFINITY), second = first;
  for (int i = 0; i < n; ++i) {
    const double value = values[i];
    second = fmax(second, fmin(first, value));
    first = fmax(first, value);
  }
  return first + second;
}

/// A block of one warp chooses the experts of one token. NaN last.
template <bool grouped>
__global__ void choose_kernel(const float* all_logits, const float* bias, Router router, std::int32_t* experts) {
  __shared__ double values[most_experts];
  __shared__ bool taken[most_experts];  // or never to be: written and read by the lane that has the expert
  const int lane = lane_here();
  const float* logits = all_logits + static_cast<std::int64_t>(blockIdx.x) * router.count;
  std::int32_t* chosen = experts + static_cast<std::int64_t>(blockIdx.x) * router.per_token;
  const bool by_logit = bias == nullptr && !grouped;  // scores have the same order
  Partition partition{};
  if (!by_logit && !router.sigmoid) partition = partition_of(logits, router.count);
  for (int e = lane; e < router.count; e += warp_lanes) {
    double value = by_logit ? static_cast<double>(logits[e]) : score_of(logits[e], router, partition);
    if (bias != nullptr) value += static_cast<double>(bias[e]);
    values[e] = value == value ? value : -static_cast<double>(INFINITY);
    taken[e] = false;
  }
  if constexpr (grouped) {
    __shared__ double scores[most_experts];
    const int size = router.count / router.groups;
    __syncthreads();
    for (int g = lane; g < router.groups; g += warp_lanes) scores[g] = two_best(values + g * size, size);
    __syncthreads();
    for (int e = lane; e < router.count; e += warp_lanes) {
      const int group = e / size;
      int ahead = 0;
      for (int g = 0; g < router.groups; ++g)
        ahead += scores[g] > scores[group] || (scores[g] == scores[group] && g < group) ? 1 : 0;
      taken[e] = ahead >= router.groups_kept;
    }
  }
  for (int j = 0; j < router.per_token; ++j) {
    Candidate best{0, -1};
    for (int e = lane; e < router.count; e += warp_lanes)
      if (!taken[e]) best = better(best, {values[e], e});
    for (int step = warp_lanes / 2; step > 0; step /= 2)
      best = better(best, {from_lane(best.value, step), from_lane(best.expert, step)});
    expect(best.expert >= 0, "choose_experts: fewer experts than a token has");
    if (best.expert % warp_lanes == lane) taken[best.expert] = true;
    if (lane == 0) insert(chosen, j, best.expert);
  }
}

/// The token of this warp; negative: none.
__device__ inline std::int64_t token_here(std::int64_t tokens) {
  const std::int64_t token =
      static_cast<std::int64_t>(blockIdx.x) * router_warps + static_cast<int>(threadIdx.x) / warp_lanes;
  return token < tokens ? token : -1;
}

__global__ void weights_kernel(const float* all_logits, const std::int32_t* experts, std::int64_t tokens, Router router,
                               float* weights) {
  const std::int64_t token = token_here(tokens);
  if (token < 0) return;
  const float* logits = all_logits + token * router.count;
  const std::int32_t* chosen = experts + token * router.per_token;
  Partition partition{};
  if (!router.sigmoid) partition = partition_of(logits, router.count);
  const double sum = weight_divisor(logits, chosen, router, partition);
  for (int j = lane_here(); j < router.per_token; j += warp_lanes)
    weights[token * router.per_token + j] =
        static_cast<float>(router.scale * (score_of(logits[chosen[j]], router, partition) / sum));
}

/// A block counts the choices of one sequence's tokens.
__global__ void loads_kernel(const std::int32_t* experts, TokensOfSequences of, int per_token, int count,
                             float* loads) {
  __shared__ int counts[most_experts];
  for (int e = static_cast<int>(threadIdx.x); e < count; e += static_cast<int>(blockDim.x)) counts[e] = 0;
  __syncthreads();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * of.length - of.first, last = first + of.length;
  const std::int64_t begin = (first > 0 ? first : 0) * per_token;
  const std::int64_t end = (last < of.tokens ? last : of.tokens) * per_token;
  for (std::int64_t i = begin + static_cast<int>(threadIdx.x); i < end; i += static_cast<int>(blockDim.x))
    atomicAdd(&counts[experts[i]], 1);
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < count; e += static_cast<int>(blockDim.x))
    loads[static_cast<std::int64_t>(blockIdx.x) * count + e] = static_cast<float>(counts[e]);
}

__global__ void router_backward_kernel(RouterBackward of) {
  const std::int64_t token = token_here(of.of.tokens);
  if (token < 0) return;
  const Router& router = of.router;
  const int lane = lane_here();
  const float* logits = of.logits + token * router.count;
  const std::int32_t* chosen = of.experts + token * router.per_token;
  const float* d_weights = of.d_weights + token * router.per_token;
  const float* loads = of.loads == nullptr ? nullptr : of.loads + (of.of.first + token) / of.of.length * router.count;
  double choices = 0;  // of the whole sequence
  if (loads != nullptr)
    for (int e = lane; e < router.count; e += warp_lanes) choices += static_cast<double>(loads[e]);
  const double length = sum_over_warp(choices) / router.per_token;  // T, which context ranks divide
  // f / T of an expert that was chosen once
  const double each = static_cast<double>(router.count) / (static_cast<double>(router.per_token) * length * length);
  const Partition partition = partition_of(logits, router.count);
  const double log_z = partition.largest + log(partition.sum);
  double total = 0, uneven = 0;
  for (int e = lane; e < router.count; e += warp_lanes) {
    const double score = score_of(logits[e], router, partition);
    total += score;
    if (loads != nullptr) uneven += score * (each * static_cast<double>(loads[e]));
  }
  total = router.sigmoid ? sum_over_warp(total) : 1;
  uneven = sum_over_warp(uneven) / total;
  if (of.losses != nullptr && lane == 0) {
    of.losses[token] = of.balance * uneven;
    of.losses[of.of.tokens + token] = of.z * log_z * log_z;
  }
  const double sum = weight_divisor(logits, chosen, router, partition);
  double mean = 0;
  for (int j = 0; j < router.per_token; ++j)
    mean += score_of(logits[chosen[j]], router, partition) / sum * static_cast<double>(d_weights[j]);
  for (int e = lane; e < router.count; e += warp_lanes) {
    const double p = partition.share(logits[e]), s = router.sigmoid ? sigmoid_of(logits[e]) : p;
    const double balance = loads == nullptr ? 0 : of.balance * (each * static_cast<double>(loads[e]) - uneven);
    double d = (router.sigmoid ? s * (1 - s) / total : p) * balance + p * 2 * of.z * log_z;
    if (!router.sigmoid && !router.normalized) d -= router.scale * s * mean;
    const double slope = router.sigmoid ? 1 - s : 1;  // of the logarithm of the score
    for (int j = 0; j < router.per_token; ++j)
      if (chosen[j] == e)
        d += router.scale * slope * s / sum * (static_cast<double>(d_weights[j]) - (router.normalized ? mean : 0));
    of.d_logits[token * router.count + e] = static_cast<float>(d);
  }
}

Grid a_warp_each(std::int64_t tokens) {
  return {.blocks = ceil_div(tokens, router_warps), .threads = warp_lanes * router_warps};
}

}  // namespace

void choose_experts(const float* logits, std::int64_t tokens, const float* bias, const Router& router,
                    std::int32_t* experts) {
  launch("choose_experts", router.groups > 1 ? choose_kernel<true> : choose_kernel<false>,
         {.blocks = tokens, .threads = warp_lanes}, logits, bias, router, experts);
}

void expert_weights(const float* logits, const std::int32_t* experts, std::int64_t tokens, const Router& router,
                    float* weights) {
  launch("expert_weights", weights_kernel, a_warp_each(tokens), logits, experts, tokens, router, weights);
}

void sequence_loads(const std::int32_t* experts, const TokensOfSequences& of, std::int64_t sequences,
                    const Router& router, float* loads) {
  launch("sequence_loads", loads_kernel, {.blocks = sequences, .threads = 1024}, experts, of, router.per_token,
         router.count, loads);
}

void router_backward(const RouterBackward& arguments) {
  launch("router_backward", router_backward_kernel, a_warp_each(arguments.of.tokens), arguments);
}

}  // namespace trireme::kernels::cuda

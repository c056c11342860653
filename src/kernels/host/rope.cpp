// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/rope.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/cuda.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"

namespace trireme::kernels {
namespace {

/// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
float rescale(float frequency, const config::RopeScaling& scaling) {
  const auto original = static_cast<float>(scaling.original_max_position_embeddings);
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto high = static_cast<float>(scaling.high_freq_factor);
  const auto factor = static_cast<float>(scaling.factor);
  const float wavelength = 2.0F * std::numbers::pi_v<float> / frequency;
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const float smooth = (original / wavelength - low) / (high - low);
  return (1.0F - smooth) * frequency / factor + smooth * frequency;
}

/// yarn (Peng et al. 2023): pairs of high frequency keep it, pairs of low frequency are interpolated. Returns the
/// fraction of its frequency that pair `i` keeps.
std::vector<float> yarn_ramp(std::int64_t head_dim, double theta, const config::RopeScaling& scaling) {
  const auto dim = static_cast<double>(head_dim);
  const auto pair_of = [&](double rotations) {  // over the original context
    const auto context = static_cast<double>(scaling.original_max_position_embeddings);
    return dim * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = pair_of(scaling.beta_fast), high = pair_of(scaling.beta_slow);
  if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  std::vector<float> kept(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < kept.size(); ++i)
    kept[i] = 1.0F - std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low),
                                0.0F, 1.0F);
  return kept;
}

/// The base of dynamic NTK for sequences of `length` tokens.
double dynamic_theta(double theta, std::int64_t width, std::int64_t length, const config::RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const double times = std::max(1.0, static_cast<double>(length) / original);
  const auto dim = static_cast<double>(width);
  return theta * std::pow(scaling.factor * times - (scaling.factor - 1), dim / (dim - 2));
}

std::vector<float> frequencies(std::int64_t head_dim, double theta, const std::optional<config::RopeScaling>& scaling,
                               std::int64_t length) {
  if (scaling && scaling->type == config::RopeType::dynamic) theta = dynamic_theta(theta, head_dim, length, *scaling);
  std::vector<float> result(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    result[i] = 1.0F / std::pow(static_cast<float>(theta), exponent);
  }
  if (!scaling) return result;
  const auto factor = static_cast<float>(scaling->factor);
  switch (scaling->type) {
    case config::RopeType::llama3:
      for (float& f : result) f = rescale(f, *scaling);
      break;
    case config::RopeType::linear:
      for (float& f : result) f /= factor;
      break;
    case config::RopeType::dynamic: break;  // its base has grown
    case config::RopeType::yarn: {
      const std::vector<float> kept = yarn_ramp(head_dim, theta, *scaling);
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = result[i] / factor * (1.0F - kept[i]) + result[i] * kept[i];
      break;
    }
    case config::RopeType::longrope: {
      const bool beyond = length > scaling->original_max_position_embeddings;
      const std::vector<double>& factors = beyond ? scaling->long_factor : scaling->short_factor;
      invariant(factors.size() == result.size(), "rope_table: longrope has a factor for each frequency");
      for (std::size_t i = 0; i < result.size(); ++i) {
        const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
        result[i] = 1.0F / (static_cast<float>(factors[i]) * std::pow(static_cast<float>(theta), exponent));
      }
      break;
    }
  }
  return result;
}

/// Factor of cosines and sines.
double amplitude(const std::optional<config::RopeScaling>& scaling) {
  const bool longrope = scaling && scaling->type == config::RopeType::longrope;
  if (!longrope && (!scaling || scaling->type != config::RopeType::yarn)) return 1;
  if (scaling->attention_factor > 0) return scaling->attention_factor;
  if (scaling->factor <= 1) return 1;
  const double stretch = std::log(scaling->factor);
  return longrope ? std::sqrt(1 + stretch / std::log(static_cast<double>(scaling->original_max_position_embeddings)))
                  : 0.1 * stretch + 1;
}

template <class T>
void rotate_head(T* x, const float* cos, const float* sin, float sign, std::int64_t half) {
  in_eights(half, [=](std::int64_t i, auto lanes) {
    const Eight a = load(x + i, lanes);
    const Eight b = load(x + i + half, lanes);
    const Eight c = load(cos + i, lanes);
    const Eight s = sign * load(sin + i, lanes);
    store(x + i, a * c - b * s, lanes);
    store(x + i + half, b * c + a * s, lanes);
  });
}

/// The same of pairs (2i, 2i + 1).
template <class T>
void rotate_neighbours(T* x, const float* cos, const float* sin, float sign, std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = get(x[2 * i]), b = get(x[2 * i + 1]), s = sign * sin[i];
    put(x[2 * i], a * cos[i] - b * s);
    put(x[2 * i + 1], b * cos[i] + a * s);
  }
}

}  // namespace

RopeTable rope_table(std::int64_t positions, std::int64_t width, double theta,
                     const std::optional<config::RopeScaling>& scaling, std::int64_t length) {
  invariant(width > 0 && width % 2 == 0, "rope_table: an even number of elements turns");
  const auto frequency = frequencies(width, theta, scaling, length);
  const double times = amplitude(scaling);
  RopeTable table{.cos = at::empty({positions, width / 2}, at::kFloat),
                  .sin = at::empty({positions, width / 2}, at::kFloat)};
  auto* cos = table.cos.mutable_data_ptr<float>();
  auto* sin = table.sin.mutable_data_ptr<float>();
  for (std::int64_t p = 0; p < positions; ++p) {
    for (const float f : frequency) {
      const float angle = static_cast<float>(p) * f;
      *cos++ = static_cast<float>(times * std::cos(static_cast<double>(angle)));
      *sin++ = static_cast<float>(times * std::sin(static_cast<double>(angle)));
    }
  }
  return table;
}

bool turns_by_length(const std::optional<config::RopeScaling>& scaling) {
  return scaling && (scaling->type == config::RopeType::longrope || scaling->type == config::RopeType::dynamic);
}

void rotate(const at::Tensor& x, const RopeTable& table, std::int64_t seq_len, Rotation direction) {
  const std::int64_t half = table.cos.size(1), head_dim = table.head_dim > 0 ? table.head_dim : 2 * half;
  const bool neighbours = table.adjacent_pairs;
  invariant(seq_len <= table.cos.size(0), "rotate: the sequence is longer than the table of positions");
  invariant(x.dim() == 2 && table.begin + 2 * half <= head_dim && x.size(1) % head_dim == 0,
            "rotate: a row of x is not a whole number of heads");
  if (x.is_cuda()) return cuda::rotate(x, table, seq_len, direction);
  const float sign = direction == Rotation::forward ? 1.0F : -1.0F;
  const auto* cos = table.cos.const_data_ptr<float>();
  const auto* sin = table.sin.const_data_ptr<float>();
  with_type(x, [&]<class T>(T) {
    const auto matrix = rows<T>(x);
    parallel(matrix.count, [=, begin = table.begin](std::int64_t n) {
      const std::int64_t angles = n % seq_len * half;
      for (T* head = matrix[n] + begin; head < matrix[n] + matrix.width; head += head_dim)
        neighbours ? rotate_neighbours(head, cos + angles, sin + angles, sign, half)
                   : rotate_head(head, cos + angles, sin + angles, sign, half);
    });
  });
}

}  // namespace trireme::kernels

// SPDX-License-Identifier: Apache-2.0
#include "support/reference/plain_fp8.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <fnmatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace trireme::test {
namespace {

/// The value of each code without a sign, smallest first, up to the largest finite one.
std::vector<double> values_of(bool e5m2) {
  const int bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7, codes = e5m2 ? 0x7c : 0x7f;
  std::vector<double> values;
  for (int code = 0; code < codes; ++code) {
    const int exponent = code >> bits, fraction = code & ((1 << bits) - 1);
    values.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias - bits)
                                   : std::ldexp((1 << bits) + fraction, exponent - bias - bits));
  }
  return values;
}

/// The nearest value of the table; of two as near the one with the even code.
double nearest(const std::vector<double>& table, double v) {
  const double size = std::abs(v);
  const auto above = std::ranges::lower_bound(table, size);
  if (above == table.end()) return std::numeric_limits<double>::quiet_NaN();  // a scale that is too small
  auto best = above;
  if (above != table.begin()) {
    const double up = *above - size, down = size - *(above - 1);
    if (down < up || (down == up && (above - table.begin()) % 2 == 1)) best = above - 1;
  }
  return std::copysign(*best, v);
}

/// The least power of two, from 2^-126 on, with which `largest` is in the table; NaN where it is not finite.
double scale_for(const std::vector<double>& table, double largest) {
  if (!std::isfinite(largest)) return std::numeric_limits<double>::quiet_NaN();
  int exponent = largest == 0 ? -126 : std::max(-126, std::ilogb(largest) - std::ilogb(table.back()) - 1);
  while (largest > std::ldexp(table.back(), exponent)) ++exponent;
  return std::ldexp(1, exponent);
}

/// The largest magnitude; NaN where there is one.
double largest(const at::Tensor& group) {
  double most = 0;
  const at::Tensor flat = group.to(at::kDouble).contiguous();
  const auto* const data = flat.const_data_ptr<double>();
  for (std::int64_t i = 0; i < flat.numel(); ++i)
    if (std::isnan(data[i]) || !(std::abs(data[i]) <= most)) most = std::abs(data[i]);
  return most;
}

/// What shares a scale becomes its values.
void round_group(const std::vector<double>& table, const at::Tensor& group) {
  const double scale = scale_for(table, largest(group));
  const at::Tensor flat = group.to(at::kDouble).contiguous();
  auto* const data = flat.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < flat.numel(); ++i) data[i] = nearest(table, data[i] / scale) * scale;
  at::Tensor(group).copy_(flat);
}

class Product : public torch::autograd::Function<Product> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            std::int64_t recipe) {
    context->save_for_backward({x, w});
    context->saved_data["recipe"] = recipe;
    const PlainRounding rounding{.recipe = static_cast<Fp8>(recipe)};
    return plain_fp8_values(x, rounding).matmul(plain_fp8_values(w, rounding).t());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const auto recipe = static_cast<Fp8>(context->saved_data["recipe"].toInt());
    const at::Tensor& d_y = gradients[0];
    const at::Tensor rounded = plain_fp8_values(d_y, {.recipe = recipe, .e5m2 = recipe == Fp8::tensorwise});
    const at::Tensor w = plain_fp8_values(saved[1], {.recipe = recipe, .down_columns = true});
    return {rounded.matmul(w), d_y.t().matmul(saved[0]), at::Tensor()};
  }
};

/// Part `rank` of `ranks` equal ones of dimension `dim`; with fewer `units` than ranks neighbours have the same one.
at::Tensor part(const at::Tensor& x, std::int64_t dim, std::int64_t rank, std::int64_t ranks, std::int64_t units) {
  const std::int64_t parts = std::min(units, ranks), size = x.size(dim) / parts;
  return x.slice(dim, rank / (ranks / parts) * size, (rank / (ranks / parts) + 1) * size);
}

}  // namespace

at::Tensor plain_fp8_values(const at::Tensor& x, const PlainRounding& rounding) {
  static const std::vector<double> tables[] = {values_of(false), values_of(true)};
  const std::vector<double>& table = tables[rounding.e5m2 ? 1 : 0];
  at::Tensor out = x.detach().clone();
  if (out.numel() == 0) return out;
  const at::Tensor summed_last = rounding.down_columns ? out.t() : out;
  if (rounding.recipe == Fp8::tensorwise) {
    round_group(table, out);
    return out;
  }
  const std::int64_t length = rounding.recipe == Fp8::mx ? 32 : summed_last.size(1);
  for (std::int64_t row = 0; row < summed_last.size(0); ++row)
    for (std::int64_t begin = 0; begin < summed_last.size(1); begin += length)
      round_group(table, summed_last[row].slice(0, begin, std::min(summed_last.size(1), begin + length)));
  return out;
}

at::Tensor plain_fp8_product(const at::Tensor& x, const at::Tensor& w, Fp8 recipe) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = w.size(0);
  return Product::apply(rows, w, static_cast<std::int64_t>(recipe)).view(shape);
}

bool PlainFp8::takes(const std::string& weight) const {
  return recipe != Fp8::none && std::ranges::none_of(skip, [&](const std::string& glob) {
           return ::fnmatch(glob.c_str(), weight.c_str(), 0) == 0;
         });
}

std::vector<at::Tensor> plain_fp8_joint(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                        const std::vector<at::Tensor>& biases, const std::vector<std::int64_t>& units,
                                        const PlainFp8& fp8) {
  std::vector<std::vector<at::Tensor>> parts(weights.size());
  for (std::int64_t rank = 0; rank < fp8.tensor; ++rank) {
    std::vector<at::Tensor> held;
    for (std::size_t i = 0; i < weights.size(); ++i) held.push_back(part(weights[i], 0, rank, fp8.tensor, units[i]));
    const at::Tensor y = plain_fp8_product(x, at::cat(held), fp8.recipe);
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const at::Tensor of_rank = y.slice(-1, begin, begin + held[i].size(0));
      parts[i].push_back(biases[i].defined() ? of_rank + part(biases[i], 0, rank, fp8.tensor, units[i]) : of_rank);
      begin += held[i].size(0);
    }
  }
  std::vector<at::Tensor> out;
  for (const std::vector<at::Tensor>& each : parts) out.push_back(at::cat(each, -1));
  return out;
}

at::Tensor plain_fp8_sum(const at::Tensor& x, const at::Tensor& w, const PlainFp8& fp8) {
  at::Tensor sum;
  for (std::int64_t rank = 0; rank < fp8.tensor; ++rank) {
    const at::Tensor term = plain_fp8_product(part(x, -1, rank, fp8.tensor, fp8.tensor),
                                              part(w, 1, rank, fp8.tensor, fp8.tensor), fp8.recipe);
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

}  // namespace trireme::test

// SPDX-License-Identifier: Apache-2.0
#include "support/reference/plain_fp8.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <fnmatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace trireme::test {
namespace {

/// The value of each code without a sign, smallest first, up to the largest finite one.
struct Table {
  explicit Table(bool e5m2) {
    const int bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7, codes = e5m2 ? 0x7c : 0x7f;
    values.fill(std::numeric_limits<double>::infinity());
    for (int code = 0; code < codes; ++code) {
      const int exponent = code >> bits, fraction = code & ((1 << bits) - 1);
      largest = exponent == 0 ? std::ldexp(fraction, 1 - bias - bits)
                              : std::ldexp((1 << bits) + fraction, exponent - bias - bits);
      values[static_cast<std::size_t>(code)] = largest;
    }
  }

  /// The nearest value; of two as near the one with the even code.
  [[nodiscard]] double nearest(double v) const {
    const double size = std::abs(v);
    if (!(size <= largest)) return std::numeric_limits<double>::quiet_NaN();  // a scale that is too small
    // Number of values below: counted, since branches would be mispredicted half of the time.
    std::size_t above = 0;
    for (std::size_t step = 64; step > 0; step /= 2)
      above += step * static_cast<std::size_t>(values[above + step - 1] < size);
    const std::size_t below = above - std::min<std::size_t>(above, 1);
    const double up = values[above] - size, down = size - values[below];
    const bool nearer = down < up, even = (down == up) & (above % 2 == 1);
    const std::size_t best = above - static_cast<std::size_t>(nearer | even);
    return std::copysign(values[best], v);
  }

  std::array<double, 128> values{};  ///< infinite past the largest
  double largest = 0;
};

/// The least power of two, from 2^-126 on, with which `largest` is in the table; NaN if it is not finite.
double scale_for(const Table& table, double largest) {
  if (!std::isfinite(largest)) return std::numeric_limits<double>::quiet_NaN();
  int exponent = largest == 0 ? -126 : std::max(-126, std::ilogb(largest) - std::ilogb(table.largest) - 1);
  while (largest > std::ldexp(table.largest, exponent)) ++exponent;
  return std::ldexp(1, exponent);
}

/// Rounds the values that share a scale.
void round_group(const Table& table, std::span<double> group) {
  double most = 0;  // the largest magnitude; NaN if there is one
  for (const double v : group)
    if (std::isnan(v) || !(std::abs(v) <= most)) most = std::abs(v);
  const double scale = scale_for(table, most);
  for (double& v : group) v = table.nearest(v / scale) * scale;
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
  static const Table e4m3(false), e5m2(true);
  const Table& table = rounding.e5m2 ? e5m2 : e4m3;
  at::Tensor out = x.detach().clone();
  if (out.numel() == 0) return out;
  // Groups of values that share a scale, one after the other.
  const at::Tensor summed_last = rounding.down_columns ? out.t() : out;
  const at::Tensor flat = summed_last.to(at::kDouble).contiguous();
  const std::span<double> all(flat.mutable_data_ptr<double>(), static_cast<std::size_t>(flat.numel()));
  const std::size_t row = rounding.recipe == Fp8::tensorwise ? all.size() : static_cast<std::size_t>(flat.size(1));
  const std::size_t length = rounding.recipe == Fp8::mx ? 32 : row;
  for (std::size_t first = 0; first < all.size(); first += row)
    for (std::size_t begin = 0; begin < row; begin += length)
      round_group(table, all.subspan(first + begin, std::min(row - begin, length)));
  at::Tensor(summed_last).copy_(flat);
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

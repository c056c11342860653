// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "kernels/simd/parallel.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm_library.hpp"

namespace trireme::kernels {
namespace {

std::string_view name_of(GemmLibrary library) {
  for (const auto& [value, name] : gemm_libraries) {
    if (value == library) return name;
  }
  throw BugError("to_text: unknown GEMM library");
}

std::string to_text(const GemmChoice::Products& p) {
  return fmt::format("{},{},{}", name_of(p.forward), name_of(p.backward_input), name_of(p.backward_weight));
}

std::string to_text(const GemmChoice::Layers& layers) {
  const std::string wide = to_text(layers.wide);
  return layers.narrow == layers.wide ? wide : fmt::format("{}/{}", wide, to_text(layers.narrow));
}

/// Time of a call; infinite if it throws.
double seconds(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  try {
    const auto start = Clock::now();
    call();
    return std::chrono::duration<double>(Clock::now() - start).count();
  } catch (const std::exception&) {  // this library cannot run here
    return std::numeric_limits<double>::infinity();
  }
}

using Call = std::function<void()>;

/// The best of some calls of each, in seconds. They take turns: a slow moment of the machine strikes all.
std::vector<double> best_times(std::span<const Call> calls) {
  constexpr int rounds = 6;
  constexpr double hopeless = 1.5;  // a library this much slower than the best is not called again
  std::vector<double> best(calls.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round <= rounds; ++round) {
    const double least = *std::min_element(best.begin(), best.end());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (round > 1 && best[i] > hopeless * least) continue;
      const double time = seconds(calls[i]);
      if (round > 0) best[i] = std::min(best[i], time);  // the first call prepares
    }
  }
  return best;
}

struct Contender {
  GemmLibrary library;
  Call call;
};

/// A tie selects the earlier one: noise should not change the choice from run to run.
GemmLibrary fastest(std::span<const Contender> contenders) {
  std::vector<Call> calls;
  for (const Contender& contender : contenders) calls.push_back(contender.call);
  const std::vector<double> times = best_times(calls);
  std::size_t best = 0;
  for (std::size_t i = 1; i < times.size(); ++i)
    if (times[i] < 0.95 * times[best]) best = i;
  return contenders[best].library;
}

enum class LayerShape { wide, narrow };

/// Operands of the measured products: several layers', in turn, so that each finds its operands and the place of its
/// result outside the second-level cache, as in a step.
class Layers {
 public:
  struct Layer {
    at::Tensor x, w, d_y;
    Grad grad;
    at::Tensor result;  ///< kept while the others' are made
  };

  explicit Layers(at::ScalarType type, LayerShape shape) {
    constexpr std::int64_t tokens = 512, few = 512, many = 1024;
    const std::int64_t in = shape == LayerShape::narrow ? many : few;
    const std::int64_t out = shape == LayerShape::narrow ? few : many;
    for (Layer& layer : layers_)
      layer = {.x = at::ones({tokens, in}, type),
               .w = at::ones({out, in}, type),
               .d_y = at::ones({tokens, out}, type),
               .grad = {.tensor = at::zeros({out, in}), .accumulate = false},
               .result = {}};
  }

  /// Calls product(layer) for the next layer at each call, shared by all products.
  template <class Product>
  [[nodiscard]] Call in_turn(const Product& product) {
    return [this, product] { product(layers_[next_++ % layers_.size()]); };
  }

 private:
  std::array<Layer, 4> layers_;  // more than there are libraries
  std::size_t next_ = 0;
};

/// Whether our weight gradients of bf16 are faster by pairs than widened.
bool pairs_pay() {
  if (!can_multiply_pairs()) return false;
  Layers layers(at::kBFloat16, LayerShape::wide);
  const auto by_pairs = [&](bool pairs) {
    return layers.in_turn([pairs](Layers::Layer& l) { blocked_backward_weight(l.d_y, l.x, l.grad, pairs); });
  };
  const std::array<Call, 2> calls{by_pairs(true), by_pairs(false)};
  const std::vector<double> times = best_times(calls);
  return times[0] < times[1];
}

/// Order of preference in ties: our own kernels first where they gain most in shapes that are not measured (forward
/// with a residual or a wide result, weight gradients; those of bf16 sum in fp32), except for forward in bf16, where
/// at::addmm adds a residual before it rounds. In backward_input of wide layers oneDNN called directly loses less than
/// at::mm in shapes that are not measured (8% in bf16 for the gradient of a head's input). pairs: of our own weight
/// gradients.
GemmChoice::Products measure(at::ScalarType type, LayerShape shape, bool pairs) {
  using enum GemmLibrary;
  Layers layers(type, shape);
  const auto forward = [&](GemmLibrary library) {
    return Contender{library, layers.in_turn([library](Layers::Layer& l) { l.result = linear(library, l.x, l.w); })};
  };
  const auto backward_input = [&](GemmLibrary library) {
    return Contender{library, layers.in_turn([library](Layers::Layer& l) {
                       l.result = linear_backward_input(library, l.d_y, l.w);
                     })};
  };
  const auto backward_weight = [&](GemmLibrary library) {
    return Contender{library, layers.in_turn([library, pairs](Layers::Layer& l) {
                       if (library == blocked) return blocked_backward_weight(l.d_y, l.x, l.grad, pairs);
                       linear_backward_weight(library, l.d_y, l.x, l.grad);
                     })};
  };
  const std::array input_calls = shape == LayerShape::narrow
                                     ? std::array{backward_input(blocked), backward_input(onednn), backward_input(at)}
                                     : std::array{backward_input(onednn), backward_input(at), backward_input(blocked)};
  return {
      .forward = fastest(type == at::kFloat ? std::array{forward(blocked), forward(at), forward(onednn)}
                                            : std::array{forward(at), forward(onednn), forward(blocked)}),
      .backward_input = fastest(input_calls),
      .backward_weight = fastest(std::array{backward_weight(blocked), backward_weight(at), backward_weight(onednn)})};
}

GemmChoice::Layers measure(at::ScalarType type, bool pairs) {
  return {.wide = measure(type, LayerShape::wide, pairs), .narrow = measure(type, LayerShape::narrow, pairs)};
}

constexpr std::string_view pairs_key = " pairs=";

GemmLibrary parse_library(std::string_view text) {
  for (const auto& [library, name] : gemm_libraries) {
    if (name == text) return library;
  }
  throw ConfigError(fmt::format("unknown GEMM library \"{}\": allowed are at, onednn and blocked", text));
}

/// Removes the front of `text` up to and including `end`, and returns the part before `end`.
std::string_view take(std::string_view& text, std::string_view whole, std::string_view end) {
  const auto at = text.find(end);
  if (at == std::string_view::npos) {
    throw ConfigError(fmt::format(
        "\"{}\" is not a GEMM choice: expected the form \"fp32=at,at,at/at,at,at bf16=at,at,at pairs=on\"", whole));
  }
  const auto result = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return result;
}

GemmChoice::Products parse_products(std::string_view text, std::string_view whole) {
  GemmChoice::Products p;
  p.forward = parse_library(take(text, whole, ","));
  p.backward_input = parse_library(take(text, whole, ","));
  p.backward_weight = parse_library(text);
  return p;
}

GemmChoice::Layers parse_layers(std::string_view text, std::string_view whole) {
  const std::size_t slash = text.find('/');
  const GemmChoice::Products wide = parse_products(text.substr(0, slash), whole);
  return {.wide = wide,
          .narrow = slash == std::string_view::npos ? wide : parse_products(text.substr(slash + 1), whole)};
}

}  // namespace

std::string to_text(const GemmChoice& choice) {
  return fmt::format("fp32={} bf16={} pairs={}", to_text(choice.fp32), to_text(choice.bf16),
                     choice.pairs ? "on" : "off");
}

GemmChoice parse_gemm_choice(std::string_view text) {
  std::string_view rest = text;
  GemmChoice choice;
  (void)take(rest, text, "fp32=");
  choice.fp32 = parse_layers(take(rest, text, " bf16="), text);
  const bool tells_pairs = rest.find(pairs_key) != std::string_view::npos;
  choice.bf16 = parse_layers(tells_pairs ? take(rest, text, pairs_key) : rest, text);
  choice.pairs = can_multiply_pairs();
  if (!tells_pairs) return choice;
  if (rest != "on" && rest != "off")
    throw ConfigError(fmt::format("\"{}\": pairs is \"{}\"; allowed are on and off", text, rest));
  choice.pairs = rest == "on";
  return choice;
}

bool runs_here(GemmLibrary library, at::ScalarType type) {
  const at::Tensor x = at::ones({4, 8}, type), w = at::ones({6, 8}, type), d_y = at::ones({4, 6}, type);
  try {
    (void)linear(library, x, w);
    (void)linear_backward_input(library, d_y, w);
    linear_backward_weight(library, d_y, x, {.tensor = at::zeros({6, 8}), .accumulate = false});
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

std::string measured_with() {
  return fmt::format("{} {} {}", libraries_version, at::get_num_threads(), worker_count(1 << 20));
}

GemmChoice measure_gemm() {
  const bool pairs = pairs_pay();
  return {.fp32 = measure(at::kFloat, false), .bf16 = measure(at::kBFloat16, pairs), .pairs = pairs};
}

}  // namespace trireme::kernels

// SPDX-License-Identifier: Apache-2.0
// The plain program's data, loss, learning rate, clipping and optimizer.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <fnmatch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numbers>
#include <optional>
#include <set>
#include <utility>

#include "support/reference/plain_llama.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/data/sampler.hpp"

namespace trireme::test {
namespace {

std::vector<std::int64_t> read_uint16(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<unsigned char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::int64_t> tokens;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) tokens.push_back(bytes[i] + 256 * bytes[i + 1]);
  return tokens;
}

/// A byte for each token; none without a mask.
std::vector<char> read_mask(const std::string& path) {
  std::ifstream file(path + ".mask", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool matches(const std::vector<std::string>& globs, const std::string& name) {
  return std::ranges::any_of(globs,
                             [&](const std::string& glob) { return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0; });
}

/// Factor of the learning rate, and weight decay.
std::pair<double, double> settings_of(const config::Optimizer& optimizer, const std::string& name) {
  const double decay = matches(optimizer.no_decay, name) ? 0 : optimizer.weight_decay;
  for (const config::ParameterGroup& group : optimizer.groups)
    if (matches(group.names, name)) return {group.lr, group.weight_decay.value_or(decay)};
  return {1, decay};
}

/// One of the two bf16 numbers around `value`: the one further from zero for the largest of the 2^16 random numbers, as
/// many as the part of their distance that the other one is off.
double stochastically_rounded(double value, std::uint32_t random) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(value)) & 0xffff0000U;
  const double nearer = std::bit_cast<float>(bits), further = std::bit_cast<float>(bits + 0x10000U);
  return random >= (further - value) / (further - nearer) * 0x1p16 ? further : nearer;
}

/// Rounds both moments of a parameter to bf16 with the random words of docs/numerics.md: Philox by seed and name,
/// counted by four elements and update; the lower half of an element's word for the first moment, the upper half for
/// the second.
template <class T>
void round_moments(std::uint64_t key, std::int64_t update, const at::Tensor& first, const at::Tensor& second) {
  T* const m = first.mutable_data_ptr<T>();
  T* const v = second.mutable_data_ptr<T>();
  for (std::int64_t i = 0; i < first.numel(); ++i) {
    const std::uint32_t word = philox4x32(key, static_cast<std::uint64_t>(i / 4),
                                          static_cast<std::uint64_t>(update))[static_cast<std::size_t>(i % 4)];
    m[i] = static_cast<T>(stochastically_rounded(m[i], word & 0xffffU));
    v[i] = static_cast<T>(stochastically_rounded(v[i], word >> 16));
  }
}

/// torch.optim.Muon's iterations (Jordan 2024), in the type of `u`.
at::Tensor orthogonal(const at::Tensor& u) {
  const bool tall = u.size(0) > u.size(1);
  at::Tensor x = (tall ? u.t() : u) / u.norm().clamp_min(1e-7);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor gram = x.matmul(x.t());
    x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram.matmul(gram)).matmul(x);
  }
  return tall ? x.t() : x;
}

double scale_of(config::MuonScale scale, const at::Tensor& matrix) {
  const auto rows = static_cast<double>(matrix.size(0)), columns = static_cast<double>(matrix.size(1));
  if (scale == config::MuonScale::moonlight) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(scale == config::MuonScale::jordan ? std::max(1.0, rows / columns) : rows / columns);
}

/// Number of matrices, side by side in its rows, that Muon updates in a parameter: those of layers, except the single
/// row that gates a shared expert; 0: AdamW updates it.
int matrices_in(const config::Optimizer& optimizer, const std::string& name, const at::Tensor& value) {
  const bool of_layer = name.find(".layers.") != std::string::npos || name.find(".h.") != std::string::npos;
  if (optimizer.name != config::OptimizerName::muon || !of_layer || value.dim() != 2 || value.size(0) == 1 ||
      matches(optimizer.adamw, name))
    return 0;
  return name.find("c_attn.weight") != std::string::npos ? 3 : 1;
}

/// torch.optim.AdamW, as its single-tensor form writes it, and torch.optim.Muon without its cast to bf16. Moments are
/// rounded after an update if they are bf16.
class PlainOptimizer {
 public:
  PlainOptimizer(const config::RunConfig& config, Parameters& parameters)
      : optimizer_(config.optimizer),
        parameters_(parameters),
        rounds_(config.precision.moments == DType::bf16),
        seed_(config.run.seed) {
    for (const auto& [name, value] : parameters_) {
      first_[name] = at::zeros_like(value);
      second_[name] = at::zeros_like(value);
    }
  }

  void step(double lr) {
    const at::NoGradGuard no_grad;
    ++count_;
    const double correction1 = 1 - std::pow(optimizer_.beta1, count_);
    const double correction2 = 1 - std::pow(optimizer_.beta2, count_);
    for (auto& [name, value] : parameters_) {
      const at::Tensor& gradient = value.grad();
      if (!gradient.defined()) continue;  // a correction bias
      const auto [factor, decay] = settings_of(optimizer_, name);
      if (decay > 0) value.mul_(1 - lr * factor * decay);
      if (const int matrices = matrices_in(optimizer_, name, value); matrices > 0) {
        muon(name, matrices, lr * factor);
        continue;
      }
      first_[name].lerp_(gradient, 1 - optimizer_.beta1);
      second_[name].mul_(optimizer_.beta2).addcmul_(gradient, gradient, 1 - optimizer_.beta2);
      const at::Tensor denominator = (second_[name].sqrt() / std::sqrt(correction2)).add_(optimizer_.eps);
      value.addcdiv_(first_[name], denominator, -lr * factor / correction1);
      if (rounds_) round_both(name);
    }
  }

 private:
  void muon(const std::string& name, int matrices, double lr) {
    const at::Tensor& gradient = parameters_[name].grad();
    at::Tensor& momentum = first_[name];
    momentum.lerp_(gradient, 1 - optimizer_.momentum);
    const at::Tensor u = optimizer_.nesterov ? gradient.lerp(momentum, optimizer_.momentum) : momentum;
    const auto values = parameters_[name].chunk(matrices), updates = u.chunk(matrices);
    for (std::size_t i = 0; i < values.size(); ++i)
      at::Tensor(values[i]).sub_(orthogonal(updates[i]) * (lr * scale_of(optimizer_.scale, values[i])));
  }
  void round_both(const std::string& name) {
    const std::uint64_t key = stream_key(seed_, "moments of " + name);
    if (first_[name].scalar_type() == at::kDouble)
      round_moments<double>(key, count_, first_[name], second_[name]);
    else
      round_moments<float>(key, count_, first_[name], second_[name]);
  }

  const config::Optimizer& optimizer_;
  Parameters& parameters_;
  Parameters first_, second_;
  bool rounds_;
  std::uint64_t seed_;
  int count_ = 0;
};

/// torch.nn.utils.clip_grad_norm_; the norm before it.
double clip_gradients(Parameters& parameters, double clip) {
  std::vector<at::Tensor> norms;
  for (const auto& [name, value] : parameters)
    if (value.grad().defined()) norms.push_back(at::linalg_vector_norm(value.grad()));
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms));
  if (clip > 0)
    for (auto& [name, value] : parameters)
      if (value.grad().defined()) value.mutable_grad().mul_((clip / (total + 1e-6)).clamp_max(1.0));
  return total.item<double>();
}

/// Wang et al. 2024: by the loads of the batch.
void step_biases(double rate, const PlainRouter& router, Parameters& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, load] : router.loads)
    if (const auto bias = parameters.find(name); bias != parameters.end())
      bias->second.add_((load.mean() - load).sign() * rate);
}

/// The numbers of type T in a file.
template <class T>
std::vector<T> numbers_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

/// The number of each token's document: from `.ends`, else from an index, else by the token that ends one.
std::vector<std::int64_t> documents_of(const std::string& path, const std::vector<std::int64_t>& tokens,
                                       std::optional<std::int64_t> document_end) {
  std::set<std::int64_t> ends;
  const std::string index = path.substr(0, path.size() - 4) + ".idx";
  if (std::filesystem::exists(path + ".ends")) {
    const auto pairs = numbers_of<std::int64_t>(path + ".ends");
    for (std::size_t i = 0; i < pairs.size(); i += 2) ends.insert(pairs[i]);
  } else if (std::filesystem::exists(index)) {  // of uint16, a sequence for each document
    std::int64_t sequences = 0, end = 0;
    const auto bytes = numbers_of<char>(index);
    std::memcpy(&sequences, &bytes[18], sizeof(sequences));
    for (std::int64_t i = 0; i < sequences; ++i) {
      std::int32_t length = 0;
      std::memcpy(&length, &bytes[static_cast<std::size_t>(34 + 4 * i)], sizeof(length));
      ends.insert(end += length);
    }
  } else if (document_end) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] == *document_end) ends.insert(static_cast<std::int64_t>(i) + 1);
  }
  std::vector<std::int64_t> documents;
  std::int64_t document = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    documents.push_back(ends.contains(static_cast<std::int64_t>(i)) ? ++document : document);
  return documents;
}

/// Later tokens, and those of other documents: [B, 1, T, T]. documents: [B, T].
at::Tensor unseen_beyond(const at::Tensor& documents) {
  const at::Tensor later = at::ones({documents.size(1), documents.size(1)}, at::kBool).triu(1);
  return at::logical_or(later, documents.unsqueeze(2) != documents.unsqueeze(1)).unsqueeze(1);
}

/// Tokens of a document, or of a part of it: position of the first, and number.
using Piece = std::pair<std::int64_t, std::int64_t>;

/// Best-fit decreasing by trying every row: the documents in each row of `length` + 1 tokens. documents: of each token.
std::vector<std::vector<Piece>> packed_rows(const std::vector<std::int64_t>& documents, std::int64_t length) {
  std::vector<std::vector<Piece>> rows;
  std::vector<Piece> rests;
  const auto tokens = static_cast<std::int64_t>(documents.size());
  for (std::int64_t begin = 0, end = 0; begin < tokens; begin = end) {
    while (end < tokens && documents[static_cast<std::size_t>(end)] == documents[static_cast<std::size_t>(begin)])
      ++end;
    for (; end - begin > length + 1; begin += length) rows.push_back({{begin, length + 1}});
    if (end - begin > 1) rests.emplace_back(begin, end - begin);
  }
  std::ranges::stable_sort(rests, [](const Piece& a, const Piece& b) { return a.second > b.second; });
  const std::size_t long_ones = rows.size();
  std::vector<std::int64_t> space(long_ones, 0);
  for (const Piece& rest : rests) {
    std::size_t best = rows.size();
    for (std::size_t row = long_ones; row < rows.size(); ++row)
      if (space[row] >= rest.second && (best == rows.size() || space[row] < space[best])) best = row;
    if (best == rows.size()) {
      rows.emplace_back();
      space.push_back(length + 1);
    }
    rows[best].push_back(rest);
    space[best] -= rest.second;
  }
  for (std::vector<Piece>& row : rows) std::ranges::sort(row);
  std::ranges::sort(rows, {}, [](const std::vector<Piece>& row) { return row.front(); });
  return rows;
}

}  // namespace

void PlainData::pack(const std::vector<std::int64_t>& tokens, const std::vector<char>& mask,
                     const std::vector<std::int64_t>& documents) {
  const auto length = static_cast<std::size_t>(config_.data.seq_len);
  for (const std::vector<Piece>& row : packed_rows(documents, config_.data.seq_len)) {
    std::vector<std::int64_t>& sample = samples_.emplace_back();
    std::vector<std::int64_t>& targets = targets_.emplace_back();
    std::vector<std::int64_t>& numbers = documents_.emplace_back();
    std::int64_t number = 0;
    for (const auto& [begin, count] : row) {
      for (std::int64_t at = begin; at < begin + count; ++at) {
        const auto i = static_cast<std::size_t>(at);
        if (!sample.empty()) targets.push_back(at > begin && (mask.empty() || mask[i] != 0) ? tokens[i] : -1);
        sample.push_back(tokens[i]);
        numbers.push_back(number);
      }
      ++number;
    }
    sample.resize(length + 1, 0);
    targets.resize(length, -1);
    numbers.resize(length, number);
  }
}

PlainData::PlainData(const config::RunConfig& config) : config_(config) {
  const std::int64_t length = config.data.seq_len;
  std::vector<data::Source> sources;
  for (const config::TokenSource& source : config.data.train) {
    const std::vector<std::int64_t> tokens = read_uint16(source.path);
    const std::int64_t count = (static_cast<std::int64_t>(tokens.size()) - 1) / length;
    const std::vector<char> mask = read_mask(source.path);
    const std::vector<std::int64_t> documents = documents_of(source.path, tokens, config.data.document_end);
    if (config.data.packing == config::Packing::best_fit) {
      pack(tokens, mask, documents);
      continue;
    }
    for (std::int64_t s = 0; s < count; ++s) {
      samples_.emplace_back(tokens.begin() + s * length, tokens.begin() + (s + 1) * length + 1);
      documents_.emplace_back(documents.begin() + s * length, documents.begin() + (s + 1) * length);
      std::vector<std::int64_t>& targets = targets_.emplace_back();
      for (std::int64_t at = s * length + 1; at <= (s + 1) * length; ++at) {
        const auto i = static_cast<std::size_t>(at);
        targets.push_back(mask.empty() || mask[i] != 0 ? tokens[i] : -1);
      }
    }
  }
  if (!config.data.shuffle) return;
  data::Sampler sampler({{.samples = static_cast<std::int64_t>(samples_.size())}},
                        config.data.seed.value_or(config.run.seed));
  const std::int64_t used = config.data.skip_to.value_or(0) + config.train.steps * config.batch.global;
  for (std::int64_t k = 0; k < used; ++k) order_.push_back(sampler.next().sample);
}

std::int64_t PlainData::sample_of(std::int64_t k) const {
  return order_.empty() ? k % static_cast<std::int64_t>(samples_.size()) : order_.at(static_cast<std::size_t>(k));
}

PlainBatch PlainData::step(std::int64_t step) const {
  std::vector<std::int64_t> inputs, targets, documents;
  const auto& ignored = config_.data.ignore_targets;
  const std::int64_t first = config_.data.skip_to.value_or(0) + step * config_.batch.global;
  for (std::int64_t k = first; k < first + config_.batch.global; ++k) {
    const auto at = static_cast<std::size_t>(sample_of(k));
    inputs.insert(inputs.end(), samples_[at].begin(), samples_[at].end() - 1);
    documents.insert(documents.end(), documents_[at].begin(), documents_[at].end());
    for (const std::int64_t token : targets_[at])
      targets.push_back(std::ranges::find(ignored, token) == ignored.end() ? token : -1);
  }
  const std::int64_t rows = config_.batch.global;
  const at::Tensor tokens = at::tensor(inputs).view({rows, -1});
  return {.inputs = tokens,
          .targets = at::tensor(targets).view({rows, -1}),
          .unseen = config_.data.document_mask ? unseen_beyond(at::tensor(documents).view({rows, -1}))
                                               : plain_unseen(tokens)};
}

double plain_learning_rate(const config::RunConfig& config, std::int64_t step) {
  const config::Lr& lr = config.lr;
  const double high = config.optimizer.lr, low = high * lr.min_ratio;
  const auto t = static_cast<double>(step), warmup = static_cast<double>(lr.warmup_steps);
  const auto end = static_cast<double>(lr.end_step.value_or(config.train.steps));
  if (t < warmup) return high * (t + 1) / warmup;
  if (lr.schedule == config::LrSchedule::constant) return high;
  if (t >= end) return low;
  const double x = (t - warmup) / (end - warmup);
  if (lr.schedule == config::LrSchedule::cosine) return low + (high - low) / 2 * (1 + std::cos(std::numbers::pi * x));
  if (lr.schedule == config::LrSchedule::linear) return high + (low - high) * x;
  const auto decay = static_cast<double>(lr.wsd_decay_steps);
  return t < end - decay ? high : high + (low - high) * (t - (end - decay)) / decay;
}

at::Tensor plain_unseen(const at::Tensor& tokens, std::optional<std::int64_t> document_end) {
  const at::Tensor later = at::ones({tokens.size(1), tokens.size(1)}, at::kBool).triu(1);
  if (!document_end) return later.expand({tokens.size(0), 1, -1, -1});
  const at::Tensor ends = (tokens == *document_end).to(at::kLong);
  return unseen_beyond(ends.cumsum(1) - ends);  // how many ended before
}

PlainLoss plain_loss(const config::Model& model, const Parameters& parameters, const PlainBatch& batch,
                     const PlainFp8& fp8) {
  PlainRouter router;
  const at::Tensor logits = plain_logits(model, parameters, batch.inputs, batch.unseen, &router, fp8);
  const at::Tensor losses =
      at::cross_entropy_loss(logits.view({-1, logits.size(2)}), batch.targets.view({-1}), {}, at::Reduction::None, -1);
  const at::Tensor counted = batch.targets >= 0;
  const at::Tensor squares = at::logsumexp(logits, 2).to(at::kDouble).pow(2) * counted;
  const at::Tensor count = counted.sum().clamp_min(1);
  return {
      .cross_entropy = losses.to(at::kDouble).sum() / count, .squared_log_z = squares.sum() / count, .router = router};
}

Curve plain_train(const config::RunConfig& config, const Parameters& initial, int steps, const std::set<int>& skipped) {
  Parameters parameters;
  for (const auto& [name, value] : initial) parameters[name] = value.detach().clone().requires_grad_();
  PlainOptimizer optimizer(config, parameters);
  const PlainData data(config);
  const PlainFp8 fp8{.recipe = config.precision.fp8, .skip = config.precision.fp8_skip, .tensor = config.mesh.tensor};
  Curve curve;
  for (int step = 0; step < steps; ++step) {
    for (auto& [name, value] : parameters) value.mutable_grad() = at::Tensor();
    const PlainBatch batch = data.step(step);
    const bool counts = (batch.targets >= 0).any().item<bool>();
    const PlainLoss loss = plain_loss(config.model, parameters, batch, fp8);
    const at::Tensor z_loss = config.loss.z_loss * loss.squared_log_z;
    const at::Tensor of_routers =
        config.loss.balance_loss * loss.router.balance + config.loss.router_z_loss * loss.router.squared_log_z;
    (loss.cross_entropy + z_loss + of_routers).backward();
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    curve.losses.push_back(counts ? loss.cross_entropy.item<double>() : none);
    curve.z_losses.push_back(counts || config.loss.z_loss == 0 ? z_loss.item<double>() : none);
    curve.router_losses.push_back(of_routers.item<double>());
    curve.router_margin = std::min(curve.router_margin, loss.router.margin);
    curve.grad_norms.push_back(clip_gradients(parameters, config.optimizer.clip_norm));
    if (skipped.contains(step) || !counts) continue;
    optimizer.step(plain_learning_rate(config, step));
    step_biases(config.loss.balance_bias_rate, loss.router, parameters);
  }
  return curve;
}

}  // namespace trireme::test

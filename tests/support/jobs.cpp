// SPDX-License-Identifier: Apache-2.0
#include "support/jobs.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "data/token_writer.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/optim/learning_rate.hpp"

namespace trireme::test {
namespace {

/// Ranks wait asleep for the first one, which computes meanwhile: MPI's wait would take its core where they share it.
void broadcast(void* data, std::size_t bytes, const mpi::Communicator& world) {
  MPI_Request request = MPI_REQUEST_NULL;
  mpi::check(MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, 0, world.handle(), &request), "broadcast in a test");
  for (int there = 0; there == 0;) {
    mpi::check(MPI_Test(&request, &there, MPI_STATUS_IGNORE), "broadcast in a test");
    if (there == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<std::uint16_t> noisy_tokens(std::uint64_t key, std::int64_t count, std::int64_t vocab_size) {
  std::vector<std::uint16_t> tokens;
  std::int64_t token = 1;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [chance, fresh, unused1, unused2] = philox4x32(key, static_cast<std::uint64_t>(i));
    token = chance % 10 < 7 ? (3 * token + 7) % vocab_size : fresh % vocab_size;
    tokens.push_back(static_cast<std::uint16_t>(token));
  }
  return tokens;
}

void write(const std::string& path, const std::vector<std::uint16_t>& tokens) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(2 * tokens.size()));
}

/// Prompts of 1 to 70 tokens, responses of 1 to 20, and one prompt that fills whole samples.
std::string responses(std::size_t tokens) {
  std::string mask(200, '\0');
  for (std::uint64_t i = 0; mask.size() < tokens; ++i) {
    const auto [prompt, response, unused1, unused2] = philox4x32(9, i);
    mask += std::string(1 + prompt % 70, '\0') + std::string(1 + response % 20, '\1');
  }
  mask.resize(tokens);
  return mask;
}

/// Documents of 1 to 30 tokens. masked: some of which do not count.
void write_documents(const std::string& output, const std::vector<std::uint16_t>& tokens, std::int64_t vocab_size,
                     bool masked = true) {
  data::TokenWriter writer(output, vocab_size, masked);
  const std::string mask = masked ? responses(tokens.size()) : std::string(tokens.size(), '\1');
  for (std::size_t at = 0, document = 0; at < tokens.size(); ++document) {
    const std::size_t length = std::min<std::size_t>(1 + philox4x32(11, document)[0] % 30, tokens.size() - at);
    writer.append(std::vector<std::int32_t>(&tokens[at], &tokens[at] + length),
                  std::vector<std::uint8_t>(&mask[at], &mask[at] + length));
    writer.end_document();
    at += length;
  }
  writer.finish();
}

}  // namespace

TokenFiles::TokenFiles(const mpi::Communicator& world, std::int64_t vocab_size)
    : world_(world), vocab_size_(vocab_size), directory_(world) {
  if (world.rank() == 0) {
    auto first = noisy_tokens(1, 2999, vocab_size);
    std::fill(first.begin() + 300, first.begin() + 450, static_cast<std::uint16_t>(silent_token));
    write(directory_.path() + "/a.bin", first);
    write(directory_.path() + "/masked.bin", first);
    std::ofstream(directory_.path() + "/masked.bin.mask", std::ios::binary) << responses(first.size());
    write_documents(directory_.path() + "/documents.bin", first, vocab_size);
    write_documents(directory_.path() + "/pair.idx", first, vocab_size);
    for (const char* const beside : {"/pair.bin.meta", "/pair.bin.ends"})
      std::filesystem::remove(directory_.path() + beside);
    const auto second = noisy_tokens(2, 5003, vocab_size);
    write(directory_.path() + "/b.bin", second);
    write_documents(directory_.path() + "/unmasked.bin", second, vocab_size, false);
  }
  MPI_Barrier(world.handle());
}

std::vector<config::TokenSource> TokenFiles::sources() const {
  return {{.path = directory_.path() + "/a.bin"}, {.path = directory_.path() + "/b.bin"}};
}

std::vector<config::TokenSource> TokenFiles::sources_with_mask() const {
  return {{.path = directory_.path() + "/masked.bin"}, {.path = directory_.path() + "/b.bin"}};
}

std::vector<config::TokenSource> TokenFiles::sources_with_silence(
    std::int64_t samples, std::int64_t seq_len, const std::function<bool(std::int64_t sample)>& silent) const {
  const std::string path = directory_.path() + "/silence.bin";
  MPI_Barrier(world_.handle());
  if (world_.rank() == 0) {
    write(path, noisy_tokens(3, samples * seq_len + 1, vocab_size_));
    std::string mask(1, '\1');
    for (std::int64_t sample = 0; sample < samples; ++sample)
      mask += std::string(static_cast<std::size_t>(seq_len), silent(sample) ? '\0' : '\1');
    std::ofstream(path + ".mask", std::ios::binary) << mask;
  }
  MPI_Barrier(world_.handle());
  return {{.path = path}};
}

std::vector<config::TokenSource> TokenFiles::sources_with_constants(
    std::int64_t samples, std::int64_t seq_len, const std::function<bool(std::int64_t sample)>& constant) const {
  const std::string path = directory_.path() + "/constants.bin";
  MPI_Barrier(world_.handle());
  if (world_.rank() == 0) {
    std::vector<std::uint16_t> tokens = noisy_tokens(4, samples * seq_len + 1, vocab_size_);
    for (std::int64_t sample = 0; sample < samples; ++sample)
      if (constant(sample))
        std::fill_n(tokens.begin() + sample * seq_len, seq_len + 1, static_cast<std::uint16_t>(silent_token));
    write(path, tokens);
  }
  MPI_Barrier(world_.handle());
  return {{.path = path}};
}

std::vector<config::TokenSource> TokenFiles::sources_with_documents(bool in_sidecar) const {
  return {{.path = directory_.path() + (in_sidecar ? "/documents.bin" : "/pair.bin")},
          {.path = directory_.path() + "/b.bin"}};
}

std::vector<config::TokenSource> TokenFiles::sources_to_pack(bool in_sidecar) const {
  return {{.path = directory_.path() + (in_sidecar ? "/documents.bin" : "/pair.bin")},
          {.path = directory_.path() + "/unmasked.bin"}};
}

config::RunConfig odd_run(const TokenFiles& files, int steps) {
  config::RunConfig config;
  config.model = {.vocab_size = 257,
                  .hidden_size = 72,
                  .intermediate_size = 100,
                  .layers = 3,
                  .heads = 6,
                  .kv_heads = 2,
                  .head_dim = 10,
                  .norm_eps = 1e-4,
                  .rope_theta = 500};
  config.data.train = files.sources();
  config.data.seq_len = 13;
  config.data.shuffle = false;
  config.batch = {.global = 48, .micro = 1};
  config.precision.compute = DType::fp32;
  config.optimizer.lr = 1e-3;
  config.lr = {.warmup_steps = 3, .min_ratio = 0.1};
  config.train.steps = steps;
  config.comm.timeout_seconds = 60;
  return config;
}

store::ParameterInitializer lively_values(std::uint64_t seed) {
  return [seed](const model::Parameter& parameter, shard::Range elements, std::span<float> out) {
    const auto named = [&](const char* part) { return parameter.name.find(part) != std::string::npos; };
    const bool bias = named(".bias");
    const bool norm = !bias && (named("norm") || named(".ln_"));
    const bool embedding = named("embed_tokens") || named(".wte.") || named(".wpe.");
    const bool query_key = named("q_proj") || named("k_proj") || named("c_attn.weight");
    const double std = norm ? 0.3 : embedding ? 0.05 : query_key ? 0.18 : 0.1;
    const std::uint64_t key = stream_key(seed, parameter.name);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] =
          static_cast<float>((norm ? 1.0 : 0.0) + std * normal_at(key, static_cast<std::uint64_t>(elements.begin) + i));
  };
}

config::RunConfig gpt2_run(const TokenFiles& files, int steps) {
  config::RunConfig config = odd_run(files, steps);
  config.model = {.architecture = "gpt2",
                  .vocab_size = 257,
                  .hidden_size = 72,
                  .intermediate_size = 100,
                  .layers = 3,
                  .heads = 6,
                  .positions = 17,
                  .norm_eps = 1e-4,
                  .tie_embeddings = true};
  // The key's bias has no true gradient (softmax does not see it): it is all rounding, and must make no step of its
  // own.
  config.optimizer.eps = 1e-6;
  return config;
}

Parameters whole_parameters(const config::RunConfig& config, const store::ParameterInitializer& values) {
  Parameters parameters;
  const model::Model model = model::build(config.model);
  for (const model::ParameterBlock& block : model.parameter_blocks)
    for (const model::Parameter& parameter : block.parameters) {
      at::Tensor whole = at::empty(parameter.shape, at::kFloat);
      values(parameter, {0, parameter.elements()},
             {whole.mutable_data_ptr<float>(), static_cast<std::size_t>(whole.numel())});
      parameters[parameter.name] = whole;
    }
  return parameters;
}

namespace {

/// Lanes rest after every step, or after the last.
Outcome train_filled(train::Job& job, const config::RunConfig& config, const AfterStep& after_step, bool rests) {
  data::BatchReader reader(config.data, data::Split::train, config.model.vocab_size, config.run.seed, job.batch_shape(),
                           {.position = config.data.skip_to.value_or(0), .taken = {}});
  Outcome outcome;
  optimizer::SpikeWindow spikes;
  for (int step = 0; step < config.train.steps; ++step) {
    const double lr = optim::learning_rate(config.lr, config.optimizer.lr, step, config.train.steps);
    const executor::StepResult result = job.step(reader.next(), lr, rests || step + 1 == config.train.steps,
                                                 config.train.skip_spikes ? &spikes : nullptr);
    spikes.add(result.loss, result.grad_norm);
    outcome.block_grad_norms = result.block_grad_norms;
    append(outcome.curve, result);
    outcome.skipped.push_back(result.skipped);
    outcome.expert_tokens.push_back(result.expert_tokens);
    if (after_step) after_step(job, step);
  }
  for (int b = 0; b < job.model().param_blocks(); ++b)
    outcome.masters.push_back(job.store().masters(ParamBlock{b}).clone());
  outcome.traffic = job.step_traffic();
  return outcome;
}

void round_away(store::ParameterStore& store, ParamBlock block) {
  const at::Tensor masters = device::on_host(store.master(block));
  at::Tensor rounded = device::on_host(store.host_compute_shard(block));
  for (std::int64_t i = 0; i < masters.numel(); ++i) {
    const float master = masters.const_data_ptr<float>()[i];
    float below = master;  // without the bits that bf16 has not
    std::uint32_t bits = 0;
    std::memcpy(&bits, &master, sizeof bits);
    bits &= 0xffff0000U;
    std::memcpy(&below, &bits, sizeof bits);
    bits += 0x10000U;
    float above = 0;
    std::memcpy(&above, &bits, sizeof bits);
    const bool down = std::fabs(double{master} - below) < std::fabs(double{above} - master);
    rounded.mutable_data_ptr<c10::BFloat16>()[i] = c10::BFloat16(down ? below : above);
  }
  store.host_compute_shard(block).copy_(rounded);
  if (store.on_host(block) == schedule::OnHost::optimizer) store.compute_shard(block).copy_(rounded);
}

}  // namespace

Outcome train_job(const config::RunConfig& config, const mpi::Communicator& world, const train::JobOptions& options,
                  const AfterStep& after_step) {
  train::Job job(config, world, options);
  job.store().fill(lively_values(values_seed));
  return train_filled(job, config, after_step, false);
}

Outcome train_job_from_ties(const config::RunConfig& config, const mpi::Communicator& world,
                            const train::JobOptions& options, bool rounded_away) {
  train::Job job(config, world, options);
  job.store().fill([](const model::Parameter& parameter, shard::Range elements, std::span<float> out) {
    lively_values(values_seed)(parameter, elements, out);
    for (std::size_t i = 0; i < out.size(); i += 1) {
      if ((elements.begin + static_cast<std::int64_t>(i)) % 3 != 0) continue;
      std::uint32_t bits = 0;
      std::memcpy(&bits, &out[i], sizeof bits);
      bits = (bits & 0xffff0000U) | 0x8000U;
      std::memcpy(&out[i], &bits, sizeof bits);
    }
  });
  const auto round_all = [&](train::Job& of, int) {
    for (int b = 0; b < of.model().param_blocks(); ++b) round_away(of.store(), ParamBlock{b});
  };
  if (rounded_away) round_all(job, -1);
  return train_filled(job, config, rounded_away ? AfterStep(round_all) : AfterStep(), rounded_away);
}

Curve plain_curve(const config::RunConfig& config, const mpi::Communicator& world, const std::set<int>& skipped,
                  at::ScalarType type, double nudge, const store::ParameterInitializer& values) {
  const auto steps = static_cast<std::size_t>(config.train.steps);
  Curve curve{std::vector<double>(steps), std::vector<double>(steps), std::vector<double>(steps),
              std::vector<double>(steps)};
  if (world.rank() == 0) {
    Parameters parameters = whole_parameters(config, values);
    for (auto& [name, value] : parameters) {
      auto* numbers = value.mutable_data_ptr<float>();
      const std::uint64_t key = stream_key(values_seed, "nudge " + name);
      for (std::int64_t i = 0; nudge != 0 && i < value.numel(); ++i)
        numbers[i] *=
            static_cast<float>(philox4x32(key, static_cast<std::uint64_t>(i))[0] % 2 == 0 ? 1 + nudge : 1 - nudge);
      value = value.to(type);
    }
    curve = plain_train(config, parameters, static_cast<int>(config.train.steps), skipped);
  }
  for (std::vector<double>* of : {&curve.losses, &curve.grad_norms, &curve.z_losses, &curve.router_losses})
    broadcast(of->data(), steps * sizeof(double), world);
  broadcast(&curve.router_margin, sizeof(double), world);
  return curve;
}

void append(Curve& curve, const executor::StepResult& result) {
  curve.losses.push_back(result.loss);
  curve.z_losses.push_back(result.z_loss);
  curve.grad_norms.push_back(result.grad_norm);
  curve.router_losses.push_back(result.balance_loss + result.router_z_loss);
}

Deviation deviation(const Curve& curve, const Curve& expected) {
  const auto most = [](const std::vector<double>& values, const std::vector<double>& wanted) {
    double worst = values.size() == wanted.size() ? 0 : std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < std::min(values.size(), wanted.size()); ++i) {
      if (values[i] == wanted[i] || (std::isnan(values[i]) && std::isnan(wanted[i]))) continue;
      const double relative = std::abs(values[i] - wanted[i]) / std::abs(wanted[i]);
      worst = std::max(worst, std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative);
    }
    return worst;
  };
  return {std::max({most(curve.losses, expected.losses), most(curve.z_losses, expected.z_losses),
                    most(curve.router_losses, expected.router_losses)}),
          most(curve.grad_norms, expected.grad_norms)};
}

}  // namespace trireme::test

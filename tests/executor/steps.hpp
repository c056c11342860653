// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ops/from_blob.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/test_transports.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/executor/executor.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"

/// A bare executor of a small Llama, without run file and token files: for tests of when things happen.
namespace trireme::executor::test {

struct Setup {
  std::string architecture = "llama";
  int layers = 4;
  int microbatches = 1;
  schedule::Policy policy{};
  /// A pass over the order of the compute ops, before all others.
  std::function<schedule::Schedule(const schedule::Schedule&)> reorder{};
  Options options{};
  std::optional<comm::Pace> reduce_pace{};  ///< how slow the reduce lane's link is
  /// All ranks share each layer instead of the parameters; with sequence parallelism or without.
  std::optional<bool> sequence_parallel{};
  std::optional<comm::Pace> tensor_pace{};  ///< how slow the tensor lane's link is
};

class Steps {
 public:
  Steps(const mpi::Communicator& world, Setup setup)
      : model_(small_model(setup, world)),
        dp_(setup.sequence_parallel ? world.split(world.rank(), 0) : world.duplicate()),
        layout_(model_, dp_.size()),
        schedule_(built(model_, setup)),
        store_(model_, layout_, dp_.rank(), store::buffers_for({&schedule_, 1}, model_, true), DType::fp32),
        layers_(make_layers(model_, seq_len, 0)),
        gather_communicator_(dp_.duplicate()),
        reduce_communicator_(dp_.duplicate()),
        control_communicator_(dp_.duplicate()),
        tensor_communicator_(world.duplicate()),
        copies_communicator_(world.duplicate()),
        norm_communicator_(world.duplicate()),
        gather_(link(gather_communicator_, "gather", std::nullopt)),
        reduce_(link(reduce_communicator_, "reduce", setup.reduce_pace)),
        control_(link(control_communicator_, "control", std::nullopt)),
        tensor_(link(tensor_communicator_, "tensor", setup.tensor_pace)),
        copies_(link(copies_communicator_, "copies", std::nullopt)),
        norm_(link(norm_communicator_, "norm", std::nullopt)),
        executor_(model_, schedule_, store_, layers_, links(setup.sequence_parallel.has_value()),
                  optimizer::OptimizerPlan(), std::move(setup.options)) {
    store_.fill(store::initial_values(1));
    microbatches_.resize(static_cast<std::size_t>(setup.microbatches));
    take_tokens(0);
  }

  /// Sets the tokens of the following steps, different for each `seed`.
  void take_tokens(int seed) {
    for (std::size_t m = 0; m < microbatches_.size(); ++m)
      microbatches_[m] = microbatch(
          100 * (100 * seed + dp_.rank()) + static_cast<int>(m),
          1.0 / static_cast<double>(microbatches_.size() * rows * seq_len * static_cast<std::size_t>(dp_.size())));
  }
  void scale_loss(double by) {
    for (nn::Microbatch& m : microbatches_) m.loss_scale *= by;
  }

  /// On the tokens that were taken last.
  StepResult run(bool last) {
    return executor_.run({.microbatches = microbatches_, .lr = 1e-2, .updates = updates_++}, last);
  }

  /// The losses and norms of `steps` steps, lanes running ahead from one to the next.
  std::vector<double> curve(int steps) {
    std::vector<double> values;
    for (int step = 0; step < steps; ++step) {
      const StepResult result = run(step + 1 == steps);
      values.push_back(result.loss);
      values.push_back(result.grad_norm);
    }
    return values;
  }

  [[nodiscard]] Executor& executor() { return executor_; }
  [[nodiscard]] const model::Model& model() const { return model_; }
  [[nodiscard]] int ops() const { return static_cast<int>(schedule_.ops.size()); }
  [[nodiscard]] const schedule::Op& op(int index) const { return schedule_.ops[static_cast<std::size_t>(index)]; }
  /// The last op whose text begins with `text`.
  [[nodiscard]] int find(const std::string& text) const {
    for (int i = ops() - 1; i >= 0; --i)
      if (schedule::print(op(i), model_).starts_with(text)) return i;
    throw BugError("the schedule has no op " + text);
  }

 private:
  static constexpr std::int64_t rows = 2, seq_len = 16;

  static model::Model small_model(const Setup& setup, const mpi::Communicator& world) {
    const config::Model config{.architecture = setup.architecture,
                               .vocab_size = 97,
                               .hidden_size = 40,
                               .intermediate_size = 56,
                               .layers = setup.layers,
                               .heads = 4};
    if (!setup.sequence_parallel) return model::build(config);
    return model::build(config,
                        {.rank = world.rank(), .ranks = world.size(), .sequence_parallel = *setup.sequence_parallel});
  }
  static schedule::Schedule built(const model::Model& model, const Setup& setup) {
    const schedule::Schedule order = schedule::compute_order(model, setup.microbatches);
    return schedule::build_step(model, setup.reorder ? setup.reorder(order) : order, setup.policy);
  }
  Links links(bool shares_layers) {
    using schedule::Lane;
    Links links;
    links.add({mesh::Group::shard, Lane::gather}, gather_);
    links.add({mesh::Group::shard, Lane::reduce}, reduce_);
    links.add({mesh::Group::dp, Lane::compute}, control_);
    if (!shares_layers) return links;
    links.add({mesh::Group::tensor, Lane::tensor}, tensor_);
    links.add({mesh::Group::tensor, Lane::reduce}, copies_);
    links.add({mesh::Group::tensor, Lane::compute}, norm_);
    return links;
  }

  static comm::Collectives link(const mpi::Communicator& communicator, const std::string& name,
                                const std::optional<comm::Pace>& pace) {
    auto transport = comm::make_transport(communicator, {}, comm::TransportChoice::automatic);
    if (pace) transport = comm::paced(std::move(transport), *pace);
    return {std::move(transport), name, name, {.deadline = {.timeout_seconds = 60}}};
  }

  static nn::Microbatch microbatch(int seed, double loss_scale) {
    std::vector<std::int32_t> tokens;
    for (std::uint64_t i = 0; i < rows * seq_len + 1; ++i)
      tokens.push_back(static_cast<std::int32_t>(philox4x32(static_cast<std::uint64_t>(seed), i)[0] % 97));
    const auto slice = [&](std::int64_t from) {
      return at::from_blob(tokens.data() + from, {rows * seq_len}, at::kInt).clone();
    };
    return {.inputs = slice(0), .targets = slice(1), .batch = rows, .seq_len = seq_len, .loss_scale = loss_scale};
  }

  model::Model model_;
  mpi::Communicator dp_;
  shard::Layout layout_;
  schedule::Schedule schedule_;
  store::ParameterStore store_;
  Layers layers_;
  mpi::Communicator gather_communicator_, reduce_communicator_, control_communicator_, tensor_communicator_,
      copies_communicator_, norm_communicator_;
  comm::Collectives gather_, reduce_, control_, tensor_, copies_, norm_;
  std::vector<nn::Microbatch> microbatches_;
  std::int64_t updates_ = 0;
  Executor executor_;  ///< last: its lanes use the rest
};

}  // namespace trireme::executor::test

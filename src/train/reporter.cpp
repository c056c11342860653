// SPDX-License-Identifier: Apache-2.0
#include "train/reporter.hpp"

#include <fmt/format.h>

#include <cmath>

#include "train/setup/banner.hpp"
#include "train/setup/gemm.hpp"
#include "train/setup/host_cores.hpp"
#include "trireme/base/log.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/model/model.hpp"
#include "trireme/train/console/terminal.hpp"

namespace trireme::train {

Reporter::Reporter(Job& job, const Environment& environment, const OpWatch& ops, Recorder& recorder, Output& output)
    : job_(job),
      config_(job.config()),
      environment_(environment),
      ops_(ops),
      recorder_(recorder),
      output_(output),
      rank_(job.mesh().rank_of(job.at()).value),
      progress_(output, {.steps = config_.train.steps,
                         .log_every = environment_.log_every,
                         .terminal = rewrites_lines(probe_terminal()),
                         .columns = terminal_columns()}),
      budget_(config_.memory.budget),
      gemm_(kernels::gemm_choice()) {}

void Reporter::begin(const checkpoint::State& state, const data::Datasets& train, double load_began) {
  gemm_ = kernels::gemm_choice();  // loading took that of the run before
  first_step_ = state.step;
  begin_ = std::chrono::steady_clock::now();
  recorder_.begin(first_step_, load_began);
  log::debug("setup complete, parameters loaded");
  if (!first_rank()) return;
  samples_ = 0;
  for (const data::Dataset& dataset : *train) {
    samples_ += dataset.samples();
    if (const auto counts = dataset.packing()) packing_ = packing_.value_or(data::PackingCounts{}) += *counts;
  }
  device_name_ = environment_.device.gpu ? environment_.device.gpu->name : cpu_model();
  output_.write(banner(job_, environment_, gemm_, samples_, packing_) + "\n");
  if (first_step_ >= config_.train.steps) output_.write(nothing_to_do(first_step_, config_.train.steps));
}

void Reporter::add(const TrainedStep& step) {
  peaks_.add(step.memory);
  if (first_rank() && !environment_.device.gpu) budget_.look(step.memory[device::Space::device]);
  recorder_.add_step(job_, step.step, step.step > first_step_ ? std::optional(step.own_seconds) : std::nullopt);
  if (step.step == 0) log::debug("the first step is done");
  if (step.step != first_step_ + 2 || !first_rank()) return;
  const std::string said = few_cores_warning(environment_.topology, environment_.threads,
                                             environment_.device.gpu.has_value(), job_.executor().host_work());
  if (!said.empty()) log::warning(said);
}

void Reporter::report(const TrainedStep& step, const checkpoint::State& state, double step_seconds) {
  if (!first_rank()) return;
  const double tokens = job_.step_tokens();
  const executor::StepResult& result = step.result;
  const bool counts = !result.skipped && job_.step_targets() > 0;
  totals_.add_step(step_seconds, tokens, counts ? std::optional(result.loss) : std::nullopt);
  recorder_.goodput()->step_ended(state.step);
  const bool recorded = state.step % config_.metrics.every == 0 || state.step == config_.train.steps;
  const bool shown = progress_.shows(state.step, step_seconds, result.skipped);
  if (!recorded && !shown) return;
  StepRow row{.step = step.step + 1,
              .loss = result.loss,
              .grad_norm = result.grad_norm,
              .spike_score = step.spike_score,
              .z_loss = config_.loss.z_loss > 0 ? std::optional(result.z_loss) : std::nullopt,
              .balance_loss = config_.loss.balance_loss > 0 ? std::optional(result.balance_loss) : std::nullopt,
              .router_z_loss = config_.loss.router_z_loss > 0 ? std::optional(result.router_z_loss) : std::nullopt,
              .expert_load = expert_load(result.expert_tokens),
              .lr = step.lr,
              .epoch = static_cast<double>(state.samples) / static_cast<double>(samples_),
              .tokens = state.tokens,
              .target_tokens = static_cast<std::int64_t>(job_.step_targets()),
              .padding_tokens = config_.batch.global * config_.data.seq_len - static_cast<std::int64_t>(tokens),
              .packing = packing_,
              .step_seconds = step_seconds,
              .data_seconds = step.data_seconds,
              .exposed_comm_seconds = result.exposed_seconds,
              .tokens_per_second = tokens / step_seconds,
              .tokens_per_second_per_rank = tokens / step_seconds / job_.mesh().ranks(),
              .gemm = kernels::to_text(gemm_),
              .device = device_name_,
              .restart_count = environment_.batch_job.restart_count,
              .goodput = recorder_.goodput()->now().share(),
              .skipped = result.skipped,
              .spike = result.spike,
              .skipped_steps = state.skipped,
              .memory = step.memory,
              .op_text = [this](int op) { return ops_.text(op); },
              .rss = device::process_memory().resident,
              .traffic = job_.step_traffic()};
  if (const auto nodes = recorder_.nodes()) {
    row.slowest_node_ratio = nodes->highest_ratio;
    row.stragglers = nodes->stragglers;
  }
  if (job_.mesh().pipeline > 1) row.pipeline_wait_seconds = result.pipeline_wait_seconds;
  row.pipeline_bubble = result.pipeline_bubble;
  for (std::size_t b = 0; b < result.block_grad_norms.size(); ++b)
    row.block_grad_norms.emplace_back(job_.whole_model().parameter_blocks[b].name, result.block_grad_norms[b]);
  if (const std::optional<double> peak = peak_flops(config_, environment_.device))
    row.mfu = model::flops_per_token(job_.whole_model(), config_.data.seq_len) * row.tokens_per_second_per_rank / *peak;
  if (recorded) recorder_.append(row);
  if (shown) progress_.show(row);
}

void Reporter::report(const EvalRow& row) {
  if (!first_rank()) return;
  if (std::isfinite(row.eval_loss)) totals_.add_evaluation(row.eval_loss);
  recorder_.append(row);
  progress_.show(row);
}

void Reporter::print_peaks() {
  if (first_rank() && first_step_ < config_.train.steps)
    output_.write("\n" + peaks_.table([this](int op) { return ops_.text(op); }));
}

void Reporter::print_summary(const checkpoint::State& state) {
  if (!first_rank() || environment_.is_trial || totals_.steps() == 0) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  output_.write(fmt::format("\n{}goodput {}\n{}", totals_.text(seconds.count()),
                            report::to_text(recorder_.goodput()->now()), next_commands(config_, state.step)));
}

}  // namespace trireme::train

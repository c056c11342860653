// SPDX-License-Identifier: Apache-2.0
#include "train/console/progress.hpp"

#include <fmt/format.h>

#include "trireme/base/units.hpp"

namespace trireme::train {

namespace {

std::string loss_text(const StepRow& row, int digits) {
  return row.counts() ? fmt::format("{:.{}f}", row.loss, digits) : "none";
}

}  // namespace

std::string terminal_line(const StepRow& row, std::int64_t steps, double seconds_left) {
  const std::string load = row.expert_load ? fmt::format("  expert load {:.2f}x", row.expert_load->max) : "";
  const char* const why = row.counts() ? "  SKIPPED: not finite" : "  SKIPPED: no target counts";
  return fmt::format("step {}/{}  loss {}  grad norm {:.3f}{}  {} tokens/s  {} left{}", row.step, steps,
                     loss_text(row, 4), row.grad_norm, load, to_short_text(row.tokens_per_second),
                     duration_text(seconds_left), row.skipped ? why : "");
}

std::string plain_line(const StepRow& row, std::int64_t steps, double seconds_left) {
  const std::string load = row.expert_load ? fmt::format(" expert_load_max={:.3f}", row.expert_load->max) : "";
  return fmt::format(
      "step={} loss={} grad_norm={:.5f} lr={:.4g} tokens_per_second={:.0f} step_seconds={:.4f} epoch={:.3g} "
      "steps={} seconds_left={:.0f}{}{}",
      row.step, loss_text(row, 6), row.grad_norm, row.lr, row.tokens_per_second, row.step_seconds, row.epoch, steps,
      seconds_left, load, row.skipped ? " skipped=true" : "");
}

std::string nothing_to_do(std::int64_t done, std::int64_t steps) {
  return fmt::format(
      "nothing to do: {} of {} steps; raise train.steps to extend the run, or set run.overwrite = true to start over\n",
      done, steps);
}

void ProgressLine::show(const StepRow& row) {
  smoothed_seconds_ = smoothed_seconds_ == 0 ? row.step_seconds : 0.9 * smoothed_seconds_ + 0.1 * row.step_seconds;
  const double seconds_left = smoothed_seconds_ * static_cast<double>(steps_ - row.step);
  if (!terminal_) {
    output_.write(plain_line(row, steps_, seconds_left) + '\n');
    return;
  }
  output_.write("\r\033[K" + terminal_line(row, steps_, seconds_left));
  open_ = true;
}

void ProgressLine::show(const EvalRow& row) {
  finish();
  std::string sets;
  for (const auto& [set, loss] : row.eval_losses) sets += fmt::format(" eval_loss.{}={:.6f}", set, loss);
  output_.write(fmt::format("step={} eval_loss={:.6f}{} eval_tokens={} eval_seconds={:.3f}\n", row.step, row.eval_loss,
                            sets, row.eval_tokens, row.eval_seconds));
}

void ProgressLine::finish() {
  if (open_) output_.write("\n");
  open_ = false;
}

}  // namespace trireme::train

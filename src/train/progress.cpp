// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/progress.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "trireme/base/units.hpp"

namespace trireme::train {

std::string terminal_line(const StepRow& row, std::int64_t steps, double seconds_left) {
  return fmt::format("step {}/{}  loss {:.4f}  grad norm {:.3f}  {} tokens/s  {} left{}", row.step, steps, row.loss,
                     row.grad_norm, to_short_text(row.tokens_per_second), duration_text(seconds_left),
                     row.skipped ? "  SKIPPED: not finite" : "");
}

std::string plain_line(const StepRow& row) {
  return fmt::format("step={} loss={:.6f} grad_norm={:.5f} lr={:.4g} tokens_per_second={:.0f} step_seconds={:.4f}{}",
                     row.step, row.loss, row.grad_norm, row.lr, row.tokens_per_second, row.step_seconds,
                     row.skipped ? " skipped=true" : "");
}

void ProgressLine::show(const StepRow& row) {
  if (!terminal_) {
    fmt::print("{}\n", plain_line(row));
    std::fflush(stdout);
    return;
  }
  smoothed_seconds_ = smoothed_seconds_ == 0 ? row.step_seconds : 0.9 * smoothed_seconds_ + 0.1 * row.step_seconds;
  fmt::print("\r\033[K{}", terminal_line(row, steps_, smoothed_seconds_ * static_cast<double>(steps_ - row.step)));
  std::fflush(stdout);
  open_ = true;
}

void ProgressLine::show(const EvalRow& row) {
  finish();
  fmt::print("step={} eval_loss={:.6f} eval_tokens={:.0f} eval_seconds={:.3f}\n", row.step, row.eval_loss,
             row.eval_tokens, row.eval_seconds);
  std::fflush(stdout);
}

void ProgressLine::finish() {
  if (open_) fmt::print("\n");
  open_ = false;
}

}  // namespace trireme::train

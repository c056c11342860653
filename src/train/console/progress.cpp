// SPDX-License-Identifier: Apache-2.0
#include "train/console/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/base/units.hpp"

namespace trireme::train {

namespace {

constexpr int widest_bar = 20, narrowest_bar = 6;

std::string loss_text(const StepRow& row, int digits) {
  return row.counts() ? fmt::format("{:.{}f}", row.loss, digits) : "none";
}

/// A loss of an evaluation, "none" where it has no targets.
std::string eval_loss_text(const EvalRow& row, double loss, int digits) {
  const bool diverged = row.eval_tokens > 0 && std::isnan(row.eval_loss);
  return std::isnan(loss) && !diverged ? "none" : fmt::format("{:.{}f}", loss, digits);
}

std::string colored(const char* code, const std::string& text, bool colors) {
  return colors ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

std::string bar(double share, int width) {
  const int filled = std::clamp(static_cast<int>(share * width), 0, width);
  return fmt::format("[{}{}]", std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(width - filled), '-'));
}

/// "12:31:05" of hours, minutes and seconds.
std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e15) return "?";
  const long long whole = std::llround(seconds);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Bytes highest_memory(const StepRow& row) { return row.memory[device::Space::device].peak_total; }

}  // namespace

std::string terminal_line(const StepRow& row, std::int64_t steps, const ProgressTimes& times, int columns,
                          bool colors) {
  const std::string loss = loss_text(row, 4);
  const char* const why = !row.counts() ? "SKIPPED: no target counts"
                          : row.spike   ? "SKIPPED: spike"
                                        : "SKIPPED: not finite";
  std::vector<std::string> parts{fmt::format("grad norm {:.3f}", row.grad_norm)};
  if (row.expert_load) parts.push_back(fmt::format("expert load {:.2f}x", row.expert_load->max));
  parts.push_back(fmt::format("{} tokens/s", to_short_text(row.tokens_per_second)));
  parts.push_back(fmt::format("{} left", duration_text(times.left)));
  if (highest_memory(row).value > 0) parts.push_back(to_text(highest_memory(row)));
  if (row.mfu) parts.push_back(fmt::format("MFU {:.1f}%", 100 * *row.mfu));

  const std::string begin = fmt::format("step {}/{}  loss ", row.step, steps);
  int room = columns - 1 - static_cast<int>(begin.size() + loss.size());  // a full line would wrap
  std::string line = begin + colored("1", loss, colors && row.counts());
  if (row.skipped) {
    line += "  " + colored("33", why, colors);
    room -= 2 + static_cast<int>(std::string_view(why).size());
  }
  for (const std::string& part : parts) {
    const int width = 2 + static_cast<int>(part.size());
    if (width > room) return line;
    line += "  " + part;
    room -= width;
  }
  const int width = std::min(widest_bar, room - 4);  // two blanks, two brackets
  if (width < narrowest_bar || steps <= 0) return line;
  return line + "  " + colored("2", bar(static_cast<double>(row.step) / static_cast<double>(steps), width), colors);
}

std::string terminal_line(const EvalRow& row, std::int64_t steps, bool colors) {
  std::string line = fmt::format("step {}/{}  eval loss {}", row.step, steps,
                                 colored("1", eval_loss_text(row, row.eval_loss, 4), colors));
  for (const auto& [set, loss] : row.eval_losses) line += fmt::format("  {} {}", set, eval_loss_text(row, loss, 4));
  if (row.bits_per_byte) line += fmt::format("  {:.4f} bits/byte", *row.bits_per_byte);
  for (const auto& [set, scores] : row.choices) line += fmt::format("  {} {:.1f}%", set, 100 * scores.accuracy);
  return line + fmt::format("  {} tokens  {}", to_short_text(static_cast<double>(row.eval_tokens)),
                            duration_text(row.eval_seconds));
}

std::string plain_line(const StepRow& row, std::int64_t steps, const ProgressTimes& times) {
  std::string memory = highest_memory(row).value > 0 ? " memory=" + to_text(highest_memory(row)) : "";
  memory.erase(std::remove(memory.begin() + (memory.empty() ? 0 : 1), memory.end(), ' '), memory.end());
  const std::string mfu = row.mfu ? fmt::format(" mfu={:.1f}%", 100 * *row.mfu) : "";
  const std::string load = row.expert_load ? fmt::format(" expert_load_max={:.3f}", row.expert_load->max) : "";
  return fmt::format(
      "step={} loss={} grad_norm={:.5f} lr={:.4g} tokens_per_second={:.0f} step_seconds={:.4f} epoch={:.3g}{}{} "
      "steps={} time={} left={}{}{}",
      row.step, loss_text(row, 6), row.grad_norm, row.lr, row.tokens_per_second, row.step_seconds, row.epoch, memory,
      mfu, steps, clock_text(times.elapsed), clock_text(times.left), load, row.skipped ? " skipped=true" : "");
}

std::string nothing_to_do(std::int64_t done, std::int64_t steps) {
  return fmt::format(
      "nothing to do: {} of {} steps; raise train.steps to extend the run, or set run.overwrite = true to start over\n",
      done, steps);
}

bool ProgressLine::shows(std::int64_t finished_steps, double step_seconds, bool skipped) {
  const bool first = smoothed_seconds_ == 0;
  smoothed_seconds_ = first ? step_seconds : 0.9 * smoothed_seconds_ + 0.1 * step_seconds;
  elapsed_ += step_seconds;
  const auto now = std::chrono::steady_clock::now();
  const auto since = now - shown_;
  const bool due = options_.terminal ? since >= std::chrono::milliseconds(100)
                                     : finished_steps % options_.log_every == 0 || since >= std::chrono::minutes(1);
  if (!first && !due && !skipped && finished_steps != options_.steps) return false;
  shown_ = now;
  return true;
}

void ProgressLine::show(const StepRow& row) {
  const ProgressTimes times{.elapsed = elapsed_,
                            .left = smoothed_seconds_ * static_cast<double>(options_.steps - row.step)};
  if (options_.terminal)
    output_.rewrite(terminal_line(row, options_.steps, times, options_.columns, true));
  else
    output_.write(plain_line(row, options_.steps, times) + '\n');
}

void ProgressLine::show(const EvalRow& row) {
  if (options_.terminal) {
    output_.write(terminal_line(row, options_.steps, true) + '\n');
    return;
  }
  std::string sets;
  const auto text = [&](double loss) { return eval_loss_text(row, loss, 6); };
  for (const auto& [set, loss] : row.eval_losses) sets += fmt::format(" eval_loss.{}={}", set, text(loss));
  if (row.bits_per_byte) sets += fmt::format(" bits_per_byte={:.6f}", *row.bits_per_byte);
  for (const auto& [set, scores] : row.choices)
    sets += fmt::format(" accuracy.{0}={1:.6f} accuracy_norm.{0}={2:.6f}", set, scores.accuracy, scores.accuracy_norm);
  output_.write(fmt::format("step={} eval_loss={}{} eval_tokens={} eval_seconds={:.3f}\n", row.step,
                            text(row.eval_loss), sets, row.eval_tokens, row.eval_seconds));
}

}  // namespace trireme::train

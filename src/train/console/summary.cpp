// SPDX-License-Identifier: Apache-2.0
#include "train/console/summary.hpp"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <string_view>

#include "trireme/base/log.hpp"
#include "trireme/base/shell_word.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/units.hpp"
#include "trireme/checkpoint/best.hpp"
#include "trireme/checkpoint/directory.hpp"

namespace trireme::train {
namespace {

/// The export, else the last checkpoint; "" without either.
std::string model_of(const config::RunConfig& config, std::int64_t step) {
  std::error_code error;
  const std::string name = checkpoint::step_name(step);
  for (const std::string& path : {config.run.output + "/export", fmt::format("{}/export-{}", config.run.output, name),
                                  fmt::format("{}/{}", config.checkpoint.directory, name)}) {
    const bool stale = path.ends_with("/export") && config.run.export_when != config::Export::end;
    if (!stale && std::filesystem::is_directory(path, error)) return path;
  }
  return "";
}

std::string best_line(const config::RunConfig& config, std::int64_t step) {
  if (!config.checkpoint.keep_best) return "";
  const std::string& directory = config.checkpoint.directory;
  const std::optional<checkpoint::Best> best = checkpoint::find_best(directory, step);
  if (!best) return "";
  return fmt::format("best checkpoint: {}/{} (validation loss {:.4f})\n", directory, checkpoint::step_name(best->step),
                     best->loss);
}

}  // namespace

void RunTotals::add_step(double seconds, double tokens, std::optional<double> loss) {
  ++steps_;
  seconds_ += seconds;
  tokens_ += tokens;
  if (!loss) return;
  if (!first_) first_ = loss;
  last_ = loss;
}

std::string RunTotals::text(double wall_seconds) const {
  std::string text =
      fmt::format("trained {} step{} in {}: ", steps_, steps_ == 1 ? "" : "s", duration_text(wall_seconds));
  text += !last_        ? "no loss"
          : steps_ == 1 ? fmt::format("loss {:.4f}", *last_)
                        : fmt::format("loss {:.4f} to {:.4f}", *first_, *last_);
  if (evaluated_) text += fmt::format(", validation {:.4f}", *evaluated_);
  return text + fmt::format(", {} tokens at {} tokens/s\n", to_short_text(tokens_),
                            seconds_ > 0 ? to_short_text(tokens_ / seconds_) : "?");
}

std::string next_commands(const config::RunConfig& config, std::int64_t step) try {
  std::string text = best_line(config, step) + "next:\n";
  const std::string model = model_of(config, step);
  if (!model.empty()) {
    const std::string word = shell_word(printable(model));
    text += fmt::format("  trireme generate {} --prompt \"...\"{}\n", word,
                        config.data.tokenizer.empty() ? " --tokenizer NAME" : "");
    if (!config.data.validation.empty())
      text += fmt::format("  trireme evaluate {} --data {}\n", word,
                          shell_word(printable(config.data.validation.front().path)));
  }
  text += fmt::format("  trireme report {}\n", shell_word(printable(config.run.output)));
  return text;
} catch (const std::exception& error) {
  log::warning(fmt::format("the end of the run could not look at what it left: {}", error.what()));
  return "";
}

}  // namespace trireme::train

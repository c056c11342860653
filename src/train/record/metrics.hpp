// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/record/log_file.hpp"
#include "trireme/comm/counters.hpp"
#include "trireme/data/packing.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/report/goodput.hpp"

namespace trireme::train {

/// Distribution of a step's tokens over the experts of the least balanced layer.
struct ExpertLoad {
  double max = 0;  ///< the most tokens of one expert / the mean over experts
  std::int64_t layer = 0;
  std::vector<std::int64_t> tokens;  ///< of each expert
};
/// tokens: by layer and expert; empty ones have no experts. Nothing without any.
[[nodiscard]] std::optional<ExpertLoad> expert_load(const std::vector<std::vector<std::int64_t>>& tokens);

/// One training step as a line of metrics.jsonl: docs/outputs.md explains the keys.
struct StepRow {
  std::int64_t step = 0;  ///< finished steps, from 1
  double loss = 0;        ///< cross-entropy alone
  double grad_norm = 0;
  std::optional<double> spike_score{};                             ///< optimizer::SpikeWindow::score
  std::vector<std::pair<std::string, double>> block_grad_norms{};  ///< by parameter block, if they are computed
  std::optional<double> z_loss{};         ///< contribution of loss.z_loss to the loss, if it is above 0
  std::optional<double> balance_loss{};   ///< contribution of loss.balance_loss, if it is above 0
  std::optional<double> router_z_loss{};  ///< contribution of loss.router_z_loss, if it is above 0
  std::optional<ExpertLoad> expert_load{};
  double lr = 0;
  double epoch = 0;                              ///< samples taken since step 0 over those of all training files
  std::int64_t tokens = 0;                       ///< inputs processed since step 0
  std::int64_t target_tokens = 0;                ///< counted targets of this step
  std::int64_t padding_tokens = 0;               ///< inputs of this step that belong to no document, of packed data
  std::optional<data::PackingCounts> packing{};  ///< of all training files, if they are packed
  double step_seconds = 0;
  double data_seconds = 0;
  double exposed_comm_seconds = 0;
  std::optional<double> pipeline_wait_seconds{}, pipeline_bubble{};  ///< with a pipeline
  double tokens_per_second = 0;
  double tokens_per_second_per_rank = 0;
  std::optional<double> mfu;
  std::string gemm;      ///< the libraries of matrix products, which determine the bits
  std::string device{};  ///< GPU or CPU of the first rank
  std::int64_t restart_count = 0;
  double goodput = 0;                          ///< report::Goodput::share of all attempts
  std::optional<double> slowest_node_ratio{};  ///< own part of a step over the median of nodes; on several nodes
  std::string stragglers{};                    ///< names of nodes
  bool skipped = false;
  bool spike = false;              ///< skipped although loss and norm are finite
  std::int64_t skipped_steps = 0;  ///< since the run began
  device::MemoryUse memory;
  std::function<std::string(int op)> op_text{};  ///< an op of the step's schedule in words
  device::ProcessSize rss;
  comm::TrafficTable traffic;

  /// Whether there are losses: a step without targets has none.
  [[nodiscard]] bool counts() const { return !skipped || target_tokens > 0; }
};

/// Shares of the questions whose right ending was picked.
struct ChoiceScores {
  double accuracy = 0, accuracy_norm = 0;  ///< of the ending with the highest log-likelihood, and with the
                                           ///< highest over its length in characters
  std::int64_t questions = 0;
  /// The standard error of a mean over so many questions.
  [[nodiscard]] double standard_error(double accuracy) const;
};

/// One evaluation.
struct EvalRow {
  std::int64_t step = 0;
  double eval_loss = 0;  ///< over the targets of all sets
  std::int64_t eval_tokens = 0;
  double eval_seconds = 0;
  std::vector<std::pair<std::string, double>> eval_losses{};  ///< by set, if they have names
  /// Bits per byte of all sets, and by set, where the bytes of the text are known (data::text_bytes).
  std::optional<double> bits_per_byte{};
  std::vector<std::pair<std::string, double>> bits_per_byte_of_sets{};
  /// By set of data.choices, "choices" if it has no name; empty where they are not scored.
  std::vector<std::pair<std::string, ChoiceScores>> choices{};
};

/// The rows as JSON, numbers in full (17 digits); non-finite ones are null.
[[nodiscard]] std::string to_json(const StepRow& row);
[[nodiscard]] std::string to_json(const EvalRow& row);

/// Seldom changing values of the rows so far: text by key.
using LastWritten = std::map<std::string, std::string>;
/// The row without those of flop_rule, gemm, memory_peak_op, comm_bytes and comm_calls that `last` has alike; notes the
/// others there. An absent key has the value of the row before.
[[nodiscard]] std::string to_json(const StepRow& row, LastWritten& last);

/// `row`, a step's, with the keys of an evaluation as null: some readers take their columns from the first lines. sets:
/// the named validation sets. choices: whether questions are scored.
[[nodiscard]] std::string with_evaluation_keys(std::string row, const std::vector<std::string>& sets,
                                               bool choices = false);

/// Rows of a metrics.jsonl for the first steps of a run.
struct KeptLines {
  std::int64_t lines = 0;
  std::int64_t evaluated_step = 0;  ///< the last one with an evaluation; 0: none
  report::LastStep before;          ///< the last row of the file before it was cut
};

/// Truncates metrics.jsonl to the lines of the first `keep_steps` steps, in place if they are its first lines: works on
/// a full disk. Throws WriteError, also if it cannot be read or has a line of more than 16 MiB; the file is unchanged
/// then.
KeptLines keep_lines(const std::string& path, std::int64_t keep_steps);

/// Appends lines to metrics.jsonl; where it can be written, each reaches the file before the call returns.
class MetricsFile {
 public:
  /// Keeps the lines of the first `keep_steps` steps, if there are any. Throws WriteError.
  explicit MetricsFile(const std::string& path, std::int64_t keep_steps = 0);
  /// Never throws: see LogFile.
  void append(const std::string& json) { file_.append(json + '\n'); }
  [[nodiscard]] const KeptLines& kept() const { return kept_; }

 private:
  KeptLines kept_;
  LogFile file_;
};

}  // namespace trireme::train

// SPDX-License-Identifier: Apache-2.0
// The sections [run], [train], [checkpoint] and [metrics]: a run from its start to its output.
#include "config/section.hpp"

namespace trireme::config {

namespace {

constexpr double largest_step = 0x1p40;
constexpr double largest_tokens = 0x1p53;

Expected read_name(const Value& value, RunSection& run) {
  std::string name;
  if (Expected expected = read_path(value, name)) return expected;
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
    return "a name of at least one character, without / and not beginning with a point";
  run.name = name;
  return std::nullopt;
}

Expected read_resume(const Value& value, Checkpoint& checkpoint) {
  std::string resume;
  if (Expected expected = read_path(value, resume)) return expected;
  if (resume.empty()) return "auto, none or the path of a checkpoint";
  checkpoint.resume = resume;
  return std::nullopt;
}

/// Overrides of it are strings.
Expected read_keep_best(const Value& value, Checkpoint& checkpoint) {
  std::string set;
  bool on = true;
  if (read(value, on) && read(value, set)) return "true, false or a set of data.validation";
  if (set == "false") on = false;
  if (set == "true") set.clear();
  checkpoint.keep_best = on ? std::optional(set) : std::nullopt;
  return std::nullopt;
}

}  // namespace

std::vector<Option> run_options() {
  Section<RunSection> s("run", &RunConfig::run);
  s.custom(
       "name", "string", read_name, [](const RunSection& run) { return print_path(run.name); },
       "name shown in the banner and in logs")
      .any_text();
  s.path("output", &RunSection::output, "directory of metrics, traces and exports").default_is("runs/<run.name>");
  s.number("seed", &RunSection::seed, at_least(0),
           "random seed of weight initialization, and the default of data.seed");
  s.flag("deterministic", &RunSection::deterministic, "bitwise reproducible on GPUs (CPU runs always are)");
  s.flag("overwrite", &RunSection::overwrite,
         "start over where run.output holds a finished run, or one of another run file");
  s.choice("export", &RunSection::export_when, "when to write a Hugging Face directory to <run.output>");
  return s.take();
}

std::vector<Option> train_options() {
  Section<Train> s("train", &RunConfig::train);
  s.size("steps", &Train::steps, largest_step, "number of optimizer steps of the whole run")
      .required_unless("train.tokens");
  s.number("tokens", &Train::tokens, between(1, largest_tokens),
           "length of the whole run in input tokens, rounded up to whole steps: instead of train.steps")
      .default_is("that of train.steps");
  s.number("eval_every", &Train::eval_every, between(0, largest_step), "evaluate every N steps (0: never)");
  s.number("eval_steps", &Train::eval_steps, between(0, largest_step),
           "number of batches of batch.global sequences of each validation set per evaluation (0: all)");
  s.number("choices_every", &Train::choices_every, between(0, largest_step),
           "score data.choices every N steps, a multiple of eval_every (0: at every evaluation)");
  s.number("choices_limit", &Train::choices_limit, between(0, largest_step),
           "number of questions of each set of data.choices, the first ones (0: all)");
  s.number(
      "max_skipped_steps", &Train::max_skipped_steps, between(0, largest_step),
      "end the run with exit code 6 after N consecutive skipped steps: loss or gradient norm not finite or a spike, "
      "or no target that counts");
  s.flag("skip_spikes", &Train::skip_spikes,
         "skip a step whose loss or gradient norm lies more than 6 standard deviations above the mean of the last 128 "
         "steps (from the 65th step on)");
  s.number("replica_check_every", &Train::replica_check_every, between(0, largest_step),
           "compare the state of the replicas every N steps (0: as often as metrics.every)");
  s.number("stop_before_limit_seconds", &Train::stop_before_limit_seconds, above(0),
           "seconds before the Slurm time limit at which the run saves and stops")
      .default_is("estimated from the time of a step and of a save");
  return s.take();
}

std::vector<Option> checkpoint_options() {
  Section<Checkpoint> s("checkpoint", &RunConfig::checkpoint);
  s.path("directory", &Checkpoint::directory, "directory of the checkpoints").default_is("<run.output>/checkpoints");
  s.number("every", &Checkpoint::every, between(0, largest_step), "save a checkpoint every N steps (0: never)");
  s.flag("at_end", &Checkpoint::at_end, "save a checkpoint after the last step");
  s.number("keep", &Checkpoint::keep, between(1, 1 << 20), "number of most recent checkpoints to keep");
  s.number("keep_every", &Checkpoint::keep_every, between(0, largest_step),
           "also keep checkpoints whose step is a multiple of N (0: none)");
  s.custom(
       "keep_best", "boolean | set", read_keep_best,
       [](const Checkpoint& checkpoint) -> Printed {
         if (!checkpoint.keep_best) return print(false);
         return checkpoint.keep_best->empty() ? print(true) : print(*checkpoint.keep_best);
       },
       "also keep the checkpoint with the lowest validation loss, as <checkpoint.directory>/best; a name: of that set "
       "of data.validation")
      .any_text();
  s.flag("async", &Checkpoint::async, "write in the background, from a copy in host memory");
  s.number("ranks_per_file", &Checkpoint::ranks_per_file, between(1, 1 << 20),
           "number of consecutive data-parallel ranks that share a file");
  s.custom(
       "resume", "auto | none | path", read_resume,
       [](const Checkpoint& checkpoint) { return print_path(checkpoint.resume); },
       "auto: resume from the latest checkpoint, if there is one; none: start at step 0; path: resume from that "
       "checkpoint")
      .any_text();
  s.choice(
      "data", &Checkpoint::data,
      "on resume, continue at the next sample, or restart at the first sample (required when the token files changed)");
  return s.take();
}

std::vector<Option> metrics_options() {
  Section<Metrics> s("metrics", &RunConfig::metrics);
  s.number("every", &Metrics::every, between(1, largest_step), "write a line to metrics.jsonl every N steps");
  s.flag("block_norms", &Metrics::block_norms, "write the gradient norm of every parameter block to metrics.jsonl");
  s.number("trace_steps", &Metrics::trace_steps, between(1, largest_step),
           "steps whose timeline is written as a Chrome trace");
  s.flag("memory_snapshot", &Metrics::memory_snapshot,
         "write memory-rankN.pickle for PyTorch's memory_viz after step 2, or after the last of trace_steps");
  s.flag("tensorboard", &Metrics::tensorboard, "also write metrics as TensorBoard events, to <run.output>/tensorboard");
  s.flag("report", &Metrics::report,
         "write <run.output>/report.html after the last step, as `trireme report` does; a failure to is a warning");
  s.number("peak_flops", &Metrics::peak_flops, above(0), "peak FLOP/s of one rank, used to compute MFU")
      .default_is("unknown");
  return s.take();
}

}  // namespace trireme::config

// SPDX-License-Identifier: Apache-2.0
// The sections [run], [train], [checkpoint] and [metrics]: a run from its start to what it leaves behind.
#include "trireme/config/section.hpp"

namespace trireme::config {

namespace {

constexpr double largest_step = 0x1p40;

Expected read_name(const Value& value, Run& run) {
  std::string name;
  if (const Expected expected = read_path(value, name)) return expected;
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
    return "a name of at least one character, without / and not beginning with a point";
  run.name = name;
  return std::nullopt;
}

Expected read_resume(const Value& value, Checkpoint& checkpoint) {
  std::string resume;
  if (const Expected expected = read_path(value, resume)) return expected;
  if (resume.empty()) return "auto, none or the path of a checkpoint";
  checkpoint.resume = resume;
  return std::nullopt;
}

}  // namespace

std::vector<Option> run_options() {
  Section<Run> s("run", &RunConfig::run);
  s.custom(
       "name", "string", read_name, [](const Run& run) { return print_path(run.name); }, "of the run")
      .any_text();
  s.path("output", &Run::output, "directory of metrics, traces and exports").default_is("runs/<run.name>");
  s.number("seed", &Run::seed, at_least(0), "of the first weights, and of data.seed");
  s.flag("deterministic", &Run::deterministic, "bitwise repeatable on GPUs, too (CPUs always are)");
  s.flag("overwrite", &Run::overwrite, "an output directory that holds an earlier run may be used");
  s.choice("export", &Run::export_when, "when a Hugging Face directory is written to <run.output>");
  return s.take();
}

std::vector<Option> train_options() {
  Section<Train> s("train", &RunConfig::train);
  s.size("steps", &Train::steps, largest_step, "optimizer updates of the whole run").required();
  s.number("eval_every", &Train::eval_every, between(0, largest_step), "steps between evaluations (0: never)");
  s.number("eval_steps", &Train::eval_steps, between(0, largest_step),
           "batches of an evaluation (0: all of data.validation)");
  s.number("max_skipped_steps", &Train::max_skipped_steps, between(0, largest_step),
           "steps in a row without a finite loss before the run gives up");
  s.number("replica_check_every", &Train::replica_check_every, between(0, largest_step),
           "steps between comparisons of the replicas' state (0: with every line of the metrics)");
  s.number("stop_before_limit_seconds", &Train::stop_before_limit_seconds, above(0),
           "save and stop at least so long before the time limit of a Slurm job")
      .default_is("as a step and a save take");
  return s.take();
}

std::vector<Option> checkpoint_options() {
  Section<Checkpoint> s("checkpoint", &RunConfig::checkpoint);
  s.path("directory", &Checkpoint::directory, "where checkpoints are").default_is("<run.output>/checkpoints");
  s.number("every", &Checkpoint::every, between(0, largest_step), "steps between checkpoints (0: never)");
  s.flag("at_end", &Checkpoint::at_end, "a checkpoint after the last step");
  s.number("keep", &Checkpoint::keep, between(1, 1 << 20), "latest checkpoints that stay");
  s.number("keep_every", &Checkpoint::keep_every, between(0, largest_step),
           "checkpoints of every so many steps stay for ever (0: none)");
  s.flag("async", &Checkpoint::async, "write while the training goes on, from a copy in host memory");
  s.number("ranks_per_file", &Checkpoint::ranks_per_file, between(1, 1 << 20),
           "neighbouring dp ranks that share a file");
  s.custom(
       "resume", "auto | none | path", read_resume,
       [](const Checkpoint& checkpoint) { return print_path(checkpoint.resume); },
       "auto: go on from the latest checkpoint, if there is one")
      .any_text();
  s.choice("data", &Checkpoint::data, "on resume: go on at the next sample, or at the first of changed token files");
  return s.take();
}

std::vector<Option> metrics_options() {
  Section<Metrics> s("metrics", &RunConfig::metrics);
  s.number("every", &Metrics::every, between(1, largest_step), "steps between lines of metrics.jsonl");
  s.number("trace_steps", &Metrics::trace_steps, between(1, largest_step), "steps whose timeline is written");
  s.flag("memory_snapshot", &Metrics::memory_snapshot,
         "write memory-rankN.pickle for PyTorch's memory_viz after step 2, or after the last of trace_steps");
  s.flag("tensorboard", &Metrics::tensorboard,
         "write the metrics as TensorBoard events, too: <run.output>/tensorboard");
  s.number("peak_flops", &Metrics::peak_flops, above(0), "FLOP/s of one rank at best, for mfu").default_is("unknown");
  return s.take();
}

}  // namespace trireme::config

// SPDX-License-Identifier: Apache-2.0
#include "train/save/saver.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <system_error>

#include "train/save/export.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/model_metadata.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::train {

Saver::Saver(Job& job, Supervision& supervision, int threads, Output& output)
    : job_(job), supervision_(supervision), output_(output), checkpoints_(job, supervision.world(), threads) {}

void Saver::print(const std::string& text) {
  if (supervision_.world().rank() == 0) output_.write(text);
}

checkpoint::State Saver::begin() {
  checkpoint::State state;
  {
    const supervise::FileWork work = supervision_.file_work("loading the parameters", 0);
    mpi::collective_try(supervision_.world(), "prepare the exports", [&] {
      const config::RunConfig& config = job_.config();
      if (supervision_.world().rank() != 0 || config.run.export_when == config::Export::never) return;
      remove_unfinished_exports(config.run.output);
      export_options_ = export_with_tokenizer(config);
    });
    state = checkpoints_.begin();
    mpi::collective_try(supervision_.world(), "read the options of exports", [&] {
      checkpoint::read_generation("the checkpoint", checkpoints_.generation(), export_options_);
    });
  }
  export_missing(state);
  return state;
}

/// An export of every checkpoint may be missing: the job ended, or a write failed, between the two. That of the loaded
/// checkpoint is written now.
void Saver::export_missing(const checkpoint::State& state) {
  const config::RunConfig& config = job_.config();
  if (config.run.export_when != config::Export::every_checkpoint || state.step == 0) return;
  bool missing = false;
  mpi::collective_try(supervision_.world(), "list the exports", [&] {
    if (supervision_.world().rank() != 0) return;
    for (const auto& [step, path] : checkpoint::list_checkpoints(config.checkpoint.directory)) {
      const std::string directory = export_directory(step);
      std::error_code error;
      if (step > state.step || std::filesystem::exists(directory, error)) continue;
      if (step == state.step)
        missing = true;
      else
        log::warning(fmt::format("{0} is missing; write it with: trireme export {1} -o {0}", directory, path));
    }
  });
  if (mpi::any_rank(supervision_.world(), missing)) try_export(state);
}

std::string Saver::export_directory(std::int64_t step) const {
  return fmt::format("{}/export-{}", job_.config().run.output, checkpoint::step_name(step));
}

void Saver::try_export(const checkpoint::State& state) {
  try {
    export_to(export_directory(state.step), state);
  } catch (const std::exception& error) {  // on the first rank: the checkpoint takes precedence
    log::error(fmt::format("the export of step {} failed, training continues: {}", state.step, error.what()));
  }
}

void Saver::print_news() {
  if (supervision_.world().rank() == 0) output_.write(checkpoints_.news());
}

supervise::Durations Saver::save(const checkpoint::State& state, bool last) {
  {
    const supervise::FileWork work = supervision_.file_work("saving a checkpoint", state.step - 1);
    print(checkpoints_.save(state, last));
  }
  supervise::Durations took{.save = checkpoints_.save_seconds()};
  const config::RunSection& run = job_.config().run;
  if (run.export_when != config::Export::every_checkpoint) return took;
  const auto begin = std::chrono::steady_clock::now();
  try_export(state);
  took.exporting = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return took;
}

void Saver::save_in_step(const checkpoint::State& state) {
  const supervise::FileWork work = supervision_.file_work("saving the last finished step", state.step - 1);
  print(checkpoints_.save_in_step(state));
}

void Saver::offer_best(const checkpoint::State& state, const checkpoint::Best& offered) {
  const supervise::FileWork work = supervision_.file_work("saving the best checkpoint", state.step - 1);
  print(checkpoints_.offer_best(state, offered));
}

void Saver::export_at_end(const checkpoint::State& state) {
  const config::RunSection& run = job_.config().run;
  if (run.export_when == config::Export::end) export_to(run.output + "/export", state);
}

void Saver::finish(const checkpoint::State& state) {
  const supervise::FileWork work = supervision_.file_work("waiting for the last save", state.step - 1);
  print(checkpoints_.finish());
}

void Saver::export_to(const std::string& directory, const checkpoint::State& state) {
  const supervise::FileWork work = supervision_.file_work("exporting the weights", state.step - 1);
  export_huggingface(job_, directory, export_options_);
  supervision_.rest();
  print(fmt::format("exported {}\n", directory));
}

}  // namespace trireme::train

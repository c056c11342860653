// SPDX-License-Identifier: Apache-2.0
#include "train/save/saver.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>

#include "train/save/export.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/model_metadata.hpp"
#include "trireme/mpi/together.hpp"

namespace trireme::train {

Saver::Saver(Job& job, Supervision& supervision, int threads, Output& output)
    : job_(job), supervision_(supervision), output_(output), checkpoints_(job, supervision.world(), threads) {}

void Saver::print(const std::string& text) {
  if (supervision_.world().rank() == 0) output_.write(text);
}

checkpoint::State Saver::begin() {
  const supervise::FileWork work = supervision_.file_work("loading the parameters", 0);
  mpi::together(supervision_.world(), [&] {
    const config::RunConfig& config = job_.config();
    if (supervision_.world().rank() != 0 || config.run.export_when == config::Export::never) return;
    remove_unfinished_exports(config.run.output);
    export_options_ = export_with_tokenizer(config);
  });
  checkpoint::State state = checkpoints_.begin();
  mpi::together(supervision_.world(),
                [&] { checkpoint::read_generation("the checkpoint", checkpoints_.generation(), export_options_); });
  return state;
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
  try {
    export_to(fmt::format("{}/export-{}", run.output, checkpoint::step_name(state.step)), state);
  } catch (const std::exception& error) {  // on the first rank: the checkpoint is what matters
    log::error(fmt::format("the export of step {} failed, training continues: {}", state.step, error.what()));
  }
  took.exporting = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return took;
}

void Saver::save_in_step(const checkpoint::State& state) {
  const supervise::FileWork work = supervision_.file_work("saving the last finished step", state.step - 1);
  print(checkpoints_.save_in_step(state));
}

void Saver::offer_best(const checkpoint::State& state, double loss) {
  const supervise::FileWork work = supervision_.file_work("saving the best checkpoint", state.step - 1);
  print(checkpoints_.offer_best(state, loss));
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

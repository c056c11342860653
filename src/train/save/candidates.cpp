// SPDX-License-Identifier: Apache-2.0
#include "train/save/candidates.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/config/load.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train {
namespace {

/// The checkpoints, a line each and the newest first, that a job with this very run file has left: it resumed from
/// `checkpoint.resume` and was stopped, and the same command line resumes from the newest, not from the named one.
std::string made_by_this_run_file(const config::RunConfig& config) {
  std::string paths;
  for (const checkpoint::Found& found : checkpoint::list_checkpoints(config.checkpoint.directory)) try {
      if (checkpoint::open_checkpoint(found.path).state.run_file == config::print_run_file(config))
        paths += found.path + "\n";
    } catch (const CheckpointError&) {  // damaged: of no use here
    }
  return paths;
}

/// Whether the newest sound checkpoint is of this very run file, with steps left: a job that was stopped is requeued.
bool stopped_on_the_way(const config::RunConfig& config) {
  for (const checkpoint::Found& found : checkpoint::list_checkpoints(config.checkpoint.directory)) try {
      const checkpoint::State state = checkpoint::open_checkpoint(found.path).state;
      return state.step < config.train.steps && state.run_file == config::print_run_file(config);
    } catch (const CheckpointError&) {  // damaged
    }
  return false;
}

bool starts_over(const config::RunConfig& config) {
  if (!config.run.overwrite || checkpoint::list_checkpoints(config.checkpoint.directory).empty()) return false;
  const bool over = !stopped_on_the_way(config);
  log::info(over ? fmt::format("run.overwrite = true: starting over; the first save sets aside what is in {}",
                               config.checkpoint.directory)
                 : fmt::format("run.overwrite = true, but {} holds an unfinished run of this very run file: resuming "
                               "it; set checkpoint.resume = none to start over",
                               config.checkpoint.directory));
  return over;
}

}  // namespace

std::string resume_candidates(const config::RunConfig& config) {
  const config::Checkpoint& options = config.checkpoint;
  // Only runs that save hold the lock; the incomplete files of another run's save are left alone.
  if (saves_checkpoints(config)) checkpoint::clean_leftovers(options.directory);
  if (options.resume == "none") return "";
  const bool over = starts_over(config);
  if (options.resume != "auto") return (over ? "" : made_by_this_run_file(config)) + options.resume;
  std::string paths;
  if (!over)
    for (const checkpoint::Found& found : checkpoint::list_checkpoints(options.directory)) paths += found.path + "\n";
  return paths;
}

}  // namespace trireme::train

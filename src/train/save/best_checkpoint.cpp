// SPDX-License-Identifier: Apache-2.0
// checkpoint.keep_best: which checkpoint is marked, and when.
#include <fmt/format.h>

#include <cmath>
#include <sstream>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/best.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train {

/// Marks the best checkpoint; why not, if it cannot be. Then none is marked, as older ones may go, until the next save,
/// which tries again.
std::string Checkpointing::mark() {
  if (world_.rank() != 0) return "";
  const std::string& directory = job_.config().checkpoint.directory;
  try {
    checkpoint::mark_best(directory, *best_);
  } catch (const WriteError& error) {  // the checkpoint itself is whole, and stays
    unmarked_ = true;
    checkpoint::forget_best(directory);
    return error.what();
  }
  unmarked_ = false;
  return "";
}

/// Before a save: failed marks, and a mark of an abandoned branch.
void Checkpointing::put_mark_right() {
  if (std::exchange(forgets_best_, false)) checkpoint::forget_best(job_.config().checkpoint.directory);
  if (unmarked_) (void)mark();
}

std::string Checkpointing::saved(std::int64_t step) {
  saved_step_ = base_step_ = step;
  if (!promised_ || promised_->step != step) return "";
  best_ = std::exchange(promised_, std::nullopt);
  if (const std::string failure = mark(); !failure.empty()) {
    log::error(fmt::format("the best checkpoint, step {}, cannot be marked, training continues: {}", step, failure));
    return "";
  }
  return fmt::format("best {}/best: step {}, eval_loss {:.6f}\n", job_.config().checkpoint.directory, step,
                     best_->loss);
}

/// The first rank decides: it gets the end of a background save before the others.
std::string Checkpointing::offer_best(const checkpoint::State& state, checkpoint::Best offered) {
  const auto first_rank_says = [this](bool flag) { return mpi::any_rank(world_, world_.rank() == 0 && flag); };
  const auto better_than = [&](const std::optional<checkpoint::Best>& other) {
    return !other || !other->comparable(offered) || offered.loss < other->loss;
  };
  if (!first_rank_says(std::isfinite(offered.loss) && better_than(best_) && better_than(promised_))) return "";
  if (world_.rank() == 0 && best_ && !best_->comparable(offered) && !promised_)
    log::info(fmt::format(
        "checkpoint.keep_best begins anew: the eval_loss {:.6f} of the best checkpoint so far, step {}, is over {}, "
        "that of step {} over {} of other files or settings",
        best_->loss, best_->step,
        best_->evaluated.empty() ? "targets that its mark does not identify"
                                 : fmt::format("{} targets", best_->targets),
        state.step, fmt::format("{} targets", offered.targets)));
  const bool under_way = background_.started() && background_.step() == state.step;  // its end marks it
  const bool saves = first_rank_says(state.step != saved_step_ && !under_way);
  std::string said = saves ? await_background("the best one") : "";  // it may be the best one until then
  offered.step = state.step;
  promised_ = std::move(offered);
  if (saves) try {
      return said + save(state, false);
    } catch (const WriteError& error) {  // checkpoint.async = false
      failed(state.step, error);
      return said;
    }
  return state.step == saved_step_ ? saved(state.step) : "";
}

/// The best checkpoint up to `step`, on the first rank.
void Checkpointing::find_best(std::int64_t step) {
  const std::string& directory = job_.config().checkpoint.directory;
  const auto find = [&]() -> std::string {
    const auto best = checkpoint::find_best(directory, step);
    const bool saves = saves_checkpoints(job_.config());
    if (best && saves) checkpoint::mark_best(directory, *best);  // a kill may have left an older link
    forgets_best_ = !best && saves;
    return best ? fmt::format("{} {} {} {}", best->step, best->loss, best->targets, best->evaluated) : "";
  };
  checkpoint::Best best;
  std::istringstream words(mpi::on_first_rank(world_, "find the best checkpoint", find));
  if (words >> best.step >> best.loss >> best.targets) {
    words >> best.evaluated;
    best_ = best;
  }
}

}  // namespace trireme::train

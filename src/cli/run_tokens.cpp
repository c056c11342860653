// SPDX-License-Identifier: Apache-2.0
#include "cli/run_tokens.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

#include "cli/start/file_progress.hpp"
#include "cli/start/launcher.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/seconds.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/text_source.hpp"
#include "trireme/data/mixture.hpp"
#include "trireme/data/token_cache.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::cli {

config::RunConfig with_tokens(const mpi::Communicator& world, config::RunConfig config, double timeout_seconds,
                              const std::function<void()>& mark) {
  if (!config::resolves_sources(config)) return config;
  mark();
  auto shown = std::chrono::steady_clock::now();
  const auto show = [&shown](const std::string& described, const data::TokenizeProgress& now) {
    constexpr double between_seconds = 10;
    if (seconds_since(shown) < between_seconds) return;
    shown = std::chrono::steady_clock::now();
    const auto read = static_cast<double>(now.bytes), all = static_cast<double>(now.all_bytes);
    const double rate = read / now.seconds;
    log::info(fmt::format("{}: tokenized {:.0f} of {:.0f} MB, {:.1f} MB/s, {} ranks at work, {:.0f} s left", described,
                          read / 1e6, all / 1e6, rate / 1e6, now.ranks, rate > 0 ? (all - read) / rate : 0));
  };
  const mpi::Progress files = file_progress(timeout_seconds, mark);
  const data::TokenCacheWork work{.threads = mpi::threads_for_rank(mpi::probe_topology(world), config.device.threads,
                                                                   environment("OMP_NUM_THREADS")),
                                  .progress = show,
                                  .mark = mark,
                                  .files = files};
  config = data::with_token_caches(world, std::move(config), work);
  if (!config::mixes_by_size(config)) return config;
  const std::string weighted = mpi::on_first_rank(
      world, "weigh the sources",
      [&] {
        config::RunConfig run = config;
        run.data = data::with_mixture_weights(checkpoint::complete_model(config));
        return config::print_run_file(run);
      },
      files);
  return config::parse_run_file(weighted, "the effective run file");
}

}  // namespace trireme::cli

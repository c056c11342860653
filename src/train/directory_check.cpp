// SPDX-License-Identifier: Apache-2.0
#include "train/directory_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "train/save/run_id.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/optimizer/plan.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

/// A small file that is removed by its destructor.
class Marker {
 public:
  Marker(std::string path, const std::string& text) : path_(std::move(path)) { io::write_text(path_, text); }
  Marker(const Marker&) = delete;
  Marker& operator=(const Marker&) = delete;
  ~Marker() {
    std::error_code error;
    io::remove_file(path_, error);
  }

 private:
  std::string path_;
};

bool holds(const std::string& path, const std::string& text) {
  std::ifstream file(path, std::ios::binary);
  return std::string{std::istreambuf_iterator<char>(file), {}} == text;
}

/// The attributes of directories that a client of NFS has cached are read anew when they are opened.
void open_parents(const fs::path& path) {
  std::error_code error;
  for (fs::path at = path; at.has_relative_path(); at = at.parent_path()) (void)fs::directory_iterator(at, error);
}

/// Whether a file that another node has written appears here within seconds.
bool appears(const std::string& path, const std::string& text) {
  using namespace std::chrono_literals;
  constexpr int tries = 30;
  for (int i = 0; i < tries; ++i) {
    if (holds(path, text)) return true;
    open_parents(fs::absolute(path).parent_path());
    std::this_thread::sleep_for(100ms);
  }
  return holds(path, text);
}

}  // namespace

config::RunConfig with_common_output(config::RunConfig config, const mpi::Communicator& world) {
  std::error_code error;
  const std::string here = fs::current_path(error).string();
  const std::string first = mpi::broadcast_text(world, here);
  if (!mpi::any_rank(world, here != first)) return config;
  const bool sees = !first.empty() && fs::is_directory(first, error);
  if (mpi::any_rank(world, !sees)) return config;  // check_checkpoint_directory names who does not
  const auto make_absolute = [&](std::string& path) {
    if (!path.empty() && fs::path(path).is_relative()) path = (fs::path(first) / path).lexically_normal().string();
  };
  make_absolute(config.run.output);
  make_absolute(config.checkpoint.directory);
  return config;
}

void check_checkpoint_directory(const config::RunConfig& config, const mpi::Communicator& world) {
  if (!saves_checkpoints(config)) return;
  const std::string& directory = config.checkpoint.directory;
  const std::string nonce = new_run_id(world);
  const std::string path = directory + "/.node-check-" + nonce;
  std::optional<Marker> marker;
  mpi::collective_try(world, "make a file in checkpoint.directory", [&] {
    if (world.rank() == 0) marker.emplace(path, nonce);
  });
  const mpi::FileView view = mpi::probe_file_view(world);
  mpi::collective_try(world, "check checkpoint.directory", [&] {
    if (view.place > 0 || view.of_first_rank) return;
    if (!appears(path, nonce))
      throw WriteError(fmt::format(
          "checkpoint.directory {} is not the one that rank 0 writes to: a file that rank 0 has made there is not seen "
          "here. Set checkpoint.directory, or run.output, to an absolute path on a file system that all nodes share.",
          fs::absolute(directory).string()));
    const Marker mine(fmt::format("{}-{}", path, world.rank()), nonce);
  });
}

std::string too_little_space(const config::Checkpoint& options, Bytes checkpoint, std::int64_t there, Bytes free) {
  const std::int64_t kept = options.keep + (options.keep_best ? 1 : 0);
  const std::int64_t more = kept + 1 - std::min(there, kept);
  const Bytes needed{more * checkpoint.value};
  if (free >= needed) return "";
  return fmt::format(
      "checkpoint.directory {}: {} are free, but {} more checkpoint{} of {} take{} {} (checkpoint.keep = {}; the "
      "oldest is removed after the newest is written): saves will fail. Free space, or set another "
      "checkpoint.directory{}.",
      options.directory, to_text(free), more, more == 1 ? "" : "s", to_text(checkpoint), more == 1 ? "s" : "",
      to_text(needed), options.keep, options.keep > 1 ? ", or a lower checkpoint.keep" : "");
}

void warn_of_little_space(const config::RunConfig& config, const model::Model& model) {
  if (!saves_checkpoints(config)) return;
  const config::Checkpoint& options = config.checkpoint;
  std::error_code error;
  const fs::space_info space = fs::space(options.directory, error);
  if (error) return;  // the first save finds out
  const auto there = static_cast<std::int64_t>(checkpoint::list_checkpoints(options.directory).size());
  const std::string text = too_little_space(options, optimizer::OptimizerPlan(config).saved_bytes(model), there,
                                            Bytes{static_cast<std::int64_t>(space.available)});
  if (!text.empty()) log::warning(text);
}

}  // namespace trireme::train

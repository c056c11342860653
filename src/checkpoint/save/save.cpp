// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save/save.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

#include "checkpoint/commit.hpp"
#include "checkpoint/save/index_image.hpp"
#include "checkpoint/save/shard_file.hpp"
#include "checkpoint/save/shard_plan.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/io/input_file.hpp"
#include "trireme/base/io/open_alone.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/io/regular_file.hpp"
#include "trireme/base/io/remove_tree.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/read_collectively.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr double room_for_metadata = 1.02;
constexpr std::int64_t metadata_bytes = std::int64_t{1} << 20;

/// One save, from the temporary directory to the commit.
class Save {
 public:
  Save(const mpi::Communicator& world, const Shards& shards, const State& state, const SaveOptions& options)
      : world_(world),
        shards_(shards),
        options_(options),
        alone_(!options.name.empty()),
        name_(alone_ ? options.name : step_name(state.step)),
        temporary_(fmt::format("{}/.{}.partial", options.directory, name_)),
        final_(fmt::format("{}/{}", options.directory, name_)) {
    manifest_.state = state;
    manifest_.mesh = shards.mesh;
    manifest_.ranks_per_file = static_cast<int>(options.ranks_per_file);
    manifest_.model = model_metadata(shards.whole_model());
    manifest_.parameters = saved_parameters(shards.whole_model());
    manifest_.rules = saved_rules(shards.whole_model(), shards.optimizer);
    const BuildInfo& build = build_info();
    manifest_.versions = {{"trireme", std::string(build.version)}, {"git", std::string(build.git_hash)}};
    for (const LibraryVersion& library : build.libraries)
      manifest_.versions.emplace_back(library.name, library.version);
  }

  Saved operator()() {
    first_rank("make the directories of a checkpoint", [&] { make_directories(); });
    every_rank("begin a checkpoint", [] { (void)fault::point("ckpt.stage"); });
    std::uint64_t digest = 0;
    write_shards([&] { digest = shard_digest(shards_); });
    std::vector<std::string> files =
        mpi::gather_texts(world_, written_.first ? file_to_json(written_.saved) : std::string());
    std::erase(files, std::string());  // of ranks other than the first of their group
    for (const std::string& text : mpi::gather_texts(world_, fmt::format("{}", digest))) {
      std::uint64_t& word = manifest_.digests.emplace_back();
      std::from_chars(text.data(), text.data() + text.size(), word);
    }
    const std::int64_t data = data_bytes(shards_);
    every_rank("check a checkpoint", [&] {
      if (written_.first) check_file(temporary_, written_.saved);
      if (world_.rank() == 0) finish(files);
    });
    first_rank("commit a checkpoint", [&] { commit(); });
    if (!alone_) make_way();
    return {.path = final_, .bytes = Bytes{data}};
  }

 private:
  /// Runs `work` on every rank; where it fails on any, all throw the same WriteError.
  template <class Work>
  void every_rank(std::string_view what, Work&& work) try {
    mpi::collective_try(world_, what, work);
  } catch (const mpi::CollectiveError& error) {
    throw not_saved(error.what());
  }
  WriteError not_saved(std::string_view why) const {
    std::error_code ignored;
    if (temporary_is_ours_) io::remove_tree(temporary_, ignored);
    return WriteError(alone_ ? fmt::format("{} was not written: {}", final_, why)
                             : fmt::format("the checkpoint of step {} was not saved; earlier ones are unchanged: {}",
                                           manifest_.state.step, why));
  }
  template <class Work>
  void first_rank(std::string_view what, Work&& work) {
    every_rank(what, [&] {
      if (world_.rank() == 0) work();
    });
  }

  /// Locks the temporary directory, which no run's lock protects, and removes leftovers of a killed process.
  void take_temporary() {
    std::error_code error;
    do {
      if (!fs::is_directory(fs::symlink_status(temporary_, error))) io::remove_leftover(temporary_);
      io::create_directories(temporary_, error);
      lock_ = io::Descriptor(io::open_alone(temporary_, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    } while (!error && lock_.get() < 0 && errno == ENOENT);  // renamed in between: another one is done
    if (lock_.get() < 0 && errno == EWOULDBLOCK)
      throw WriteError(
          fmt::format("{}: another process is writing it; wait for its end, or give another path", final_));
    if (lock_.get() < 0)
      throw WriteError(fmt::format("{}: cannot be created: {}; choose a directory that you may write to", temporary_,
                                   std::strerror(errno)));
    for (const fs::path& left : io::entries_of(temporary_, error)) io::remove_tree(left, error);
  }

  void make_directories() {
    std::error_code error;
    alone_ ? take_temporary() : io::remove_tree(temporary_, error);
    temporary_is_ours_ = true;
    io::create_directories(temporary_ + "/shards", error);
    if (error)
      throw WriteError(fmt::format("{}: cannot be created: {}; {}", temporary_, error.message(),
                                   error.value() == ENAMETOOLONG ? io::remedy_of_long_name
                                   : alone_                      ? "choose a directory that you may write to"
                                                                 : "set checkpoint.directory to where you may write"));
    io::sync_directory(options_.directory);
    const auto needed =
        static_cast<std::int64_t>(room_for_metadata * static_cast<double>(data_bytes(shards_))) + metadata_bytes;
    struct statvfs space {};
    if (::statvfs(options_.directory.c_str(), &space) != 0) return;
    const auto available = static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize);
    if (available < needed)
      throw WriteError(
          fmt::format("{}: a checkpoint needs {} ({} bytes), {} ({} bytes) are free; free space or set "
                      "checkpoint.directory to another file system",
                      options_.directory, to_text(Bytes{needed}), needed, to_text(Bytes{available}), available));
  }

  void write_shards(const Meanwhile& meanwhile) {
    const mesh::Mesh& mesh = shards_.mesh;
    const int first_rank = mesh.rank_of({.pipeline = shards_.at.pipeline, .tensor = shards_.at.tensor}).value;
    const Writers writers = writers_of(mesh, shards_.dp_rank(), options_.ranks_per_file);
    std::optional<mpi::Communicator> group;
    if (options_.ranks_per_file > 1)
      group.emplace(world_.split(first_rank + writers.first * mesh.tensor, shards_.dp_rank()));
    every_rank("write a checkpoint", [&] {
      written_ = write_shard_file(group ? &*group : nullptr, temporary_, shards_, options_.ranks_per_file, meanwhile);
    });
  }

  /// Removes checkpoints beyond `keep`, after every rank has verified the new one from the disk. If it differs, the new
  /// one is removed; if it cannot be read, all stay.
  void make_way() {
    const bool first = world_.rank() == 0;
    std::vector<std::string> old;
    if (first) try {
        old = old_checkpoints(final_, manifest_.state.run_id, options_.keep, options_.keep_every, options_.best_step,
                              manifest_.state.skipped_in_a_row > 0);
      } catch (const Error& error) {
        log::warning(fmt::format("no older checkpoint is removed: {}", error.what()));
      }
    if (!mpi::any_rank(world_, !old.empty())) return;
    try {
      read_collectively(world_, "read a checkpoint back", [&] {
        if (first) (void)open_manifest(final_);
        read_back(final_, written_);
      });
    } catch (const Damaged& damage) {
      if (first) remove_checkpoint(final_);
      throw not_saved(damage.what());
    } catch (const io::ReadError& error) {
      throw io::ReadError(fmt::format(
          "{} was written, but could not be read back, and no other checkpoint was removed: {}", final_, error.what()));
    }
    for (const std::string& path : old) remove_checkpoint(path);
  }

  void finish(const std::vector<std::string>& files) {
    (void)fault::point("ckpt.manifest");
    const std::string json = to_json(manifest_, files);
    manifest_ = parse_manifest(index_path(temporary_), json);
    index_image(manifest_, json).write_file(index_path(temporary_));
    io::File::update(index_path(temporary_)).sync_and_close();
    const FileHash index = hash_file(index_path(temporary_));
    io::write_text(temporary_ + "/COMMIT", commit_text(format_version(manifest_), index.bytes, index.hash));
    io::sync_directory(temporary_ + "/shards");
    io::sync_directory(temporary_);
    (void)open_manifest(temporary_);
  }

  void commit() const {
    if (!alone_) set_aside_newer(options_.directory, options_.base_step);
    (void)fault::point("ckpt.rename");
    std::error_code error;
    io::rename_file(temporary_, final_, error);
    if (error) throw WriteError(fmt::format("{}: cannot be renamed to {}: {}", temporary_, final_, error.message()));
    try {
      io::sync_directory(options_.directory);
    } catch (const WriteError&) {  // else the next save would take it for one that the run went back from
      io::rename_file(final_, temporary_, error);
      throw;
    }
  }

  const mpi::Communicator& world_;
  const Shards& shards_;
  SaveOptions options_;
  bool alone_;
  std::string name_;
  std::string temporary_;
  std::string final_;
  Manifest manifest_;
  WrittenFile written_;
  io::Descriptor lock_;             ///< on `temporary_`, if it is no run's
  bool temporary_is_ours_ = false;  ///< on the first rank
};

}  // namespace

Saved save(const mpi::Communicator& world, const Shards& shards, const State& state, const SaveOptions& options) {
  return Save(world, shards, state, options)();
}

}  // namespace trireme::checkpoint

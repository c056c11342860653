// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/directory.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <span>
#include <vector>

#include "base/io/try_again.hpp"
#include "checkpoint/commit.hpp"
#include "checkpoint/hdf5.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/io/concurrently.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/io/remove_tree.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/data/text/xxh3.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step-";
constexpr std::int64_t most_commit_bytes = 4096;
constexpr std::int64_t most_index_bytes = std::int64_t{1} << 31;
constexpr std::string_view manifest_name = "manifest";

/// The step in a checkpoint's name; -1 for any other name.
std::int64_t step_of(const std::string& name) {
  if (!name.starts_with(step_prefix)) return -1;
  std::int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [stop, problem] = std::from_chars(name.data() + step_prefix.size(), end, step);
  return problem == std::errc{} && stop == end && step_name(step) == name ? step : -1;
}

std::vector<fs::path> entries(const std::string& directory) {
  const io::PathKind kind = io::status_of(directory).kind;
  if (kind == io::PathKind::nothing) return {};
  if (kind != io::PathKind::directory) io::cannot_read(directory, "list it", ENOTDIR);
  std::vector<fs::path> paths;
  const int error = io::last_error([&] {
    std::error_code problem;
    paths = io::entries_of(directory, problem);
    errno = problem.value();
    return !problem;
  });
  if (error != 0) io::cannot_read(directory, "list it", error);
  return paths;
}

bool is_own_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

void remove_or_warn(const fs::path& path) {
  std::error_code error;
  // The many files first, several at a time; never through a link.
  const fs::path shards = path / "shards";
  if (is_own_directory(path) && is_own_directory(shards)) {
    const std::vector<fs::path> files = io::entries_of(shards, error);
    io::concurrently(files.size(), [&](std::size_t i) { (void)::unlink(files[i].c_str()); });
  }
  io::remove_tree(path, error);
  if (error) log::warning(fmt::format("{}: cannot be removed: {}; remove it by hand", path.string(), error.message()));
}

/// Mistake in a file of the checkpoint at `path`; empty: it is there, and as long as it has to be.
std::string wrong_with(const std::string& path, const SavedFile& file) {
  const std::string name = path + "/" + file.path;
  const io::PathStatus status = io::status_of(name);
  if (status.kind == io::PathKind::nothing) return fmt::format("{}: No such file or directory", name);
  if (status.kind != io::PathKind::file) return fmt::format("{}: is not a file", name);
  if (status.bytes != file.bytes) return fmt::format("{}: has {} bytes instead of {}", name, status.bytes, file.bytes);
  return {};
}

void check_files(const std::string& path, std::span<const SavedFile> files) {
  std::vector<std::string> wrong(files.size());
  io::concurrently(files.size(), [&](std::size_t i) { wrong[i] = wrong_with(path, files[i]); });
  Mistakes mistakes;
  for (const std::string& message : wrong)
    if (!message.empty()) mistakes.add(message);
  if (!mistakes.empty())
    throw CheckpointError(fmt::format("{} of {} files are missing or have another size: {}; use another checkpoint",
                                      mistakes.messages().size(), files.size(), mistakes.messages().front()));
}

/// The manifest of a checkpoint that run `run_id` committed; "" of any other, and of a damaged one.
std::string manifest_of_run(const std::string& path, const std::string& run_id) {
  try {
    std::string manifest = open_manifest_text(path);
    return run_id_in(manifest) == run_id ? manifest : "";
  } catch (const CheckpointError&) {
    return "";
  }
}

std::string commit_path(const std::string& path) { return path + "/COMMIT"; }

std::uint64_t text_hash(std::string_view text) { return data::xxh3(std::as_bytes(std::span(text))); }

/// COMMIT's last line is the checksum of those before it.
void check_commit(const std::string& path, const std::string& text) {
  constexpr std::size_t last_line = 17;
  if (text.size() > last_line) {
    const std::string body = text.substr(0, text.size() - last_line);
    if (text.substr(body.size()) == fmt::format("{:016x}\n", text_hash(body))) return;
  }
  throw CheckpointError(fmt::format("{}: is damaged; use another checkpoint", commit_path(path)));
}

}  // namespace

std::string step_name(std::int64_t step) { return fmt::format("{}{:08}", step_prefix, step); }

std::string index_path(const std::string& path) { return path + "/index.h5"; }

std::string commit_text(int version, std::int64_t bytes, std::uint64_t hash) {
  const std::string text = fmt::format("trireme checkpoint {}\nindex.h5 {} {:016x}\n", version, bytes, hash);
  return text + fmt::format("{:016x}\n", text_hash(text));
}

FileHash hash_file(const std::string& path) {
  const io::File file = io::File::open(path);
  data::Xxh3 checksum;
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  for (std::int64_t at = 0; at < file.size();) {
    const auto count = std::min<std::int64_t>(static_cast<std::int64_t>(buffer.size()), file.size() - at);
    const std::span bytes(buffer.data(), static_cast<std::size_t>(count));
    file.read_at(at, bytes);
    checksum.add(bytes);
    at += count;
  }
  return {.bytes = file.size(), .hash = checksum.value()};
}

std::vector<Found> list_checkpoints(const std::string& directory) {
  std::vector<Found> found;
  for (const fs::path& path : entries(directory))
    if (const std::int64_t step = step_of(path.filename().string()); step >= 0) found.push_back({step, path.string()});
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.step > b.step; });
  return found;
}

std::string checkpoints_beside(const std::string& path) {
  const std::string directory = fs::path(path).parent_path().string();
  std::vector<std::string> names;
  if (io::status_of(directory).kind == io::PathKind::directory)
    for (const Found& found : list_checkpoints(directory)) names.push_back(fs::path(found.path).filename().string());
  return names.empty() ? "" : fmt::format("in {} there are {}", directory, join(names, ", "));
}

void require_checkpoint(const std::string& path) {
  if (io::status_of(path).kind != io::PathKind::directory) {
    const std::string beside = checkpoints_beside(path);
    throw CheckpointError(fmt::format("{}: no such checkpoint; {}", path, beside.empty() ? "check the path" : beside));
  }
  if (const std::vector<Found> inside = list_checkpoints(path); !inside.empty())
    throw CheckpointError(fmt::format("{}: is a directory of {} checkpoint{}; name one of them, such as {}", path,
                                      inside.size(), inside.size() == 1 ? "" : "s", inside.front().path));
  if (const std::vector<Found> inside = list_checkpoints(path + "/checkpoints"); !inside.empty())
    throw CheckpointError(fmt::format("{}: is the directory of a run; name one of its checkpoints, such as {}", path,
                                      inside.front().path));
  const auto holds = [&](const char* name) { return io::status_of(path + "/" + name).kind != io::PathKind::nothing; };
  if (!holds("COMMIT") && !holds("index.h5") && holds("config.json"))
    throw CheckpointError(fmt::format(
        "{}: is a Hugging Face directory, not a checkpoint: a run takes its weights by model.from; `trireme import` "
        "makes a checkpoint of it",
        path));
  if (!holds("COMMIT") && !holds("index.h5") && !holds("shards"))
    throw CheckpointError(
        fmt::format("{}: is not a checkpoint; name one, such as runs/first/checkpoints/step-00000100", path));
}

std::string open_manifest_text(const std::string& path) {
  require_checkpoint(path);
  if (io::status_of(commit_path(path)).kind == io::PathKind::nothing)
    throw CheckpointError(
        fmt::format("{}/COMMIT: is missing, so the save was never completed; use another checkpoint", path));
  const std::string commit = io::read_text(commit_path(path), most_commit_bytes);
  check_commit(path, commit);
  // Read once, for its checksum and for HDF5: a failed read is thus never mistaken for damage.
  const std::string index = io::read_text(index_path(path), most_index_bytes);
  const auto fits = [&](int version) {
    return commit == commit_text(version, static_cast<std::int64_t>(index.size()), text_hash(index));
  };
  if (std::ranges::none_of(format_versions, fits))
    throw CheckpointError(
        fmt::format("{}: is damaged, or {} is of another checkpoint or version: size and checksum do not fit; use "
                    "another checkpoint",
                    index_path(path), commit_path(path)));
  const h5::Hdf5Lock lock;
  return h5::read_bytes(index, index_path(path), std::string(manifest_name));
}

Manifest open_checkpoint(const std::string& path) {
  Manifest manifest = open_manifest(path);
  check_files(path, manifest.files);
  return manifest;
}

Manifest open_manifest(const std::string& path) { return parse_manifest(index_path(path), open_manifest_text(path)); }

void check_file(const std::string& path, const SavedFile& file) { check_files(path, {&file, 1}); }

void clean_leftovers(const std::string& directory) {
  for (const fs::path& path : entries(directory)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(".step-") || !(name.ends_with(".partial") || name.ends_with(".removed"))) continue;
    log::info(fmt::format("{}: removed, an earlier job ended while it was at work on it", path.string()));
    remove_or_warn(path);
  }
}

void set_aside_newer(const std::string& directory, std::int64_t step) {
  for (const Found& found : list_checkpoints(directory)) {
    if (found.step <= step) continue;
    std::error_code error;
    fs::path target;
    for (int n = 1; target.empty() || fs::exists(target, error); ++n)
      target = fs::path(directory) / fmt::format("set-aside-{}-{}", n, step_name(found.step));
    io::rename_file(found.path, target, error);
    if (error)
      throw WriteError(fmt::format("{}: cannot be renamed to {}: {}; move it away by hand", found.path, target.string(),
                                   error.message()));
    log::warning(fmt::format("{} is now {}: this run resumed from step {}", found.path, target.string(), step));
  }
}

std::vector<std::string> old_checkpoints(const std::string& saved, const std::string& run_id, std::int64_t keep,
                                         std::int64_t keep_every, std::int64_t best, bool in_streak) {
  std::vector<std::string> old;
  std::int64_t kept = 0;
  for (const Found& found : list_checkpoints(fs::path(saved).parent_path().string())) {
    const bool milestone = keep_every > 0 && found.step % keep_every == 0;
    if (kept >= keep && milestone) continue;
    bool skipped = in_streak;
    if (found.path != saved) {
      const std::string manifest = manifest_of_run(found.path, run_id);
      if (manifest.empty()) continue;
      skipped = skipped_in_a_row_in(manifest) > 0;
    }
    if (skipped) {
      if (found.path != saved && !milestone && found.step != best) old.push_back(found.path);
    } else if (++kept > keep && found.step != best && !in_streak) {
      old.push_back(found.path);
    }
  }
  return old;
}

std::string newest_without_skipped_steps(const std::string& directory, std::int64_t step) {
  try {
    for (const Found& found : list_checkpoints(directory)) try {
        if (found.step <= step && skipped_in_a_row_in(open_manifest_text(found.path)) == 0) return found.path;
      } catch (const CheckpointError&) {  // damaged: of no use
      }
  } catch (const Error& error) {
    log::warning(fmt::format("{}: no checkpoint is looked for: {}", directory, error.what()));
  }
  return "";
}

void remove_checkpoint(const std::string& path) {
  const fs::path old = fs::path(path).lexically_normal();
  const fs::path hidden = old.parent_path() / fmt::format(".{}.removed", old.filename().string());
  remove_or_warn(hidden);
  std::error_code error;
  io::rename_file(old, hidden, error);
  (void)fault::point("ckpt.gc");
  remove_or_warn(error ? old : hidden);
}

}  // namespace trireme::checkpoint

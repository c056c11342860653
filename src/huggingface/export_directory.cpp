// SPDX-License-Identifier: Apache-2.0
#include "huggingface/export_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/io/json.hpp"
#include "huggingface/safetensors_header.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/io/remove_tree.hpp"
#include "trireme/base/text.hpp"

namespace trireme::huggingface {

namespace {

namespace fs = std::filesystem;

/// The files that an export writes, as globs.
constexpr std::array written = {"config.json",
                                "generation_config.json",
                                "model.safetensors",
                                "model-*-of-*.safetensors",
                                "model.safetensors.index.json",
                                "tokenizer.json",
                                "tokenizer_config.json",
                                "tokenizer.model",
                                "special_tokens_map.json",
                                "added_tokens.json",
                                "additional_chat_templates",
                                "chat_template.jinja"};

fs::path resolved(const std::string& directory) {
  std::error_code error;
  fs::path path = fs::weakly_canonical(directory, error);
  if (error) path = fs::absolute(directory).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

fs::path sibling(const fs::path& path, const std::string& suffix) {
  return path.parent_path() / ("." + path.filename().string() + suffix);
}

void must(const std::error_code& error, const std::string& what) {
  if (error)
    throw WriteError(fmt::format("cannot {}: {}; check the directory and its permissions", what, error.message()));
}

bool is_written_by_us(const fs::path& entry) {
  const std::string name = entry.filename().string();
  if (std::none_of(written.begin(), written.end(), [&](const char* glob) { return glob_match(glob, name); }))
    return false;
  if (entry.extension() != ".safetensors") return true;
  try {
    return is_written_by_trireme(io::File::open(entry.string()));
  } catch (const CheckpointError&) {  // damaged: of unknown origin
    return false;
  }
}

}  // namespace

void ExportDirectory::check(const std::string& directory, bool overwrite) {
  const io::PathKind kind = io::status_of(directory).kind;
  if (kind == io::PathKind::nothing) return;
  if (kind != io::PathKind::directory)
    throw CheckpointError(fmt::format("{}: is not a directory; export to another one", directory));
  std::error_code error;
  const std::vector<fs::path> entries = io::entries_of(directory, error);
  if (error) io::cannot_read(directory, "be read", error.value());  // whose files it holds is unknown
  bool has_weights = false;
  for (const fs::path& entry : entries) {
    if (!overwrite) {
      throw CheckpointError(
          fmt::format("{}: is not empty; export to another directory, or replace an earlier export: `trireme export "
                      "--overwrite`, in a run file run.overwrite = true",
                      directory));
    }
    if (!is_written_by_us(entry)) {
      throw CheckpointError(
          fmt::format("{}: holds {}, which no export of Trireme wrote, so it is not overwritten; move it away or "
                      "export to another directory",
                      directory, io::in_quotes(entry.filename().string())));
    }
    has_weights = has_weights || entry.extension() == ".safetensors";
  }
  if (!entries.empty() && !has_weights)
    throw CheckpointError(
        fmt::format("{}: holds files but no weights, so no export of Trireme wrote it, and it is not "
                    "overwritten; move it away or export to another directory",
                    directory));
}

ExportDirectory::ExportDirectory(const std::string& directory)
    : final_(resolved(directory)), partial_(sibling(final_, ".partial")), old_(sibling(final_, ".old")) {
  std::error_code error;
  take_partial();
  if (!fs::exists(final_, error) && fs::is_directory(fs::symlink_status(old_, error)))
    io::rename_file(old_, final_, error);  // `exchange` was killed
  io::remove_tree(partial_, error);
  must(error, fmt::format("remove {}, left by an earlier export", partial_.string()));
  io::create_directories(partial_, error);
  must(error, fmt::format("create {}", partial_.string()));
  take_partial();
}

void ExportDirectory::take_partial() {
  if (lock_ >= 0) ::close(lock_);
  lock_ = ::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(lock_);
  throw WriteError(fmt::format(
      "{}: another export is being written there; wait for its end, or export to another directory", final_.string()));
}

ExportDirectory::~ExportDirectory() {
  std::error_code ignored;  // an error is already on its way
  if (!published_) io::remove_tree(partial_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

void ExportDirectory::exchange() const {
  if (::syscall(SYS_renameat2, AT_FDCWD, partial_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) == 0) return;
  const std::error_code refused(errno, std::generic_category());
  if (refused.value() != EINVAL && refused.value() != ENOSYS && refused.value() != ENOTSUP)
    must(refused, fmt::format("exchange {} and {}", partial_.string(), final_.string()));
  // A file system that cannot exchange, as NFS: for a moment there is no export; a kill in it leaves the old one as
  // `.<name>.old`.
  std::error_code error;
  io::remove_tree(old_, error);
  must(error, fmt::format("remove {}, left by an earlier export", old_.string()));
  io::rename_file(final_, old_, error);
  must(error, fmt::format("move {} aside", final_.string()));
  io::rename_file(partial_, final_, error);
  must(error, fmt::format("rename {} to {}", partial_.string(), final_.string()));
}

void ExportDirectory::publish() {
  io::sync_directory(partial_.string());
  std::error_code error;
  if (fs::exists(final_, error)) {
    exchange();
  } else {
    io::rename_file(partial_, final_, error);
    must(error, fmt::format("rename {} to {}", partial_.string(), final_.string()));
  }
  published_ = true;
  io::sync_directory(final_.has_parent_path() ? final_.parent_path().string() : ".");
  for (const fs::path& replaced : {partial_, old_}) {
    io::remove_tree(replaced, error);
    must(error, fmt::format("remove {}, which was replaced", replaced.string()));
  }
}

}  // namespace trireme::huggingface

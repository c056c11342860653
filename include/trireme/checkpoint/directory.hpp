// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/checkpoint/manifest.hpp"

/// A directory of checkpoints: `step-00000100/` is complete; a name that begins with a point is incomplete, and stays
/// so if its writer has ended. Only one rank calls these functions.
namespace trireme::checkpoint {

/// "step-00000100".
[[nodiscard]] std::string step_name(std::int64_t step);

/// A directory that carries a checkpoint's name; complete or damaged.
struct Found {
  std::int64_t step = 0;
  std::string path;
};
/// All checkpoints in `directory`, the newest first; none if the directory does not exist. Throws CheckpointError if it
/// is no directory, ReadError.
[[nodiscard]] std::vector<Found> list_checkpoints(const std::string& directory);
/// For messages on a missing `path`: "in DIRECTORY there are step-..."; "" if there are none.
[[nodiscard]] std::string checkpoints_beside(const std::string& path);

/// Reads COMMIT, index.h5 against its checksum, and the manifest; checks the size of every shard file. Throws
/// CheckpointError with the file and the mistake, ReadError if the system cannot read one.
[[nodiscard]] Manifest open_checkpoint(const std::string& path);
/// The same without the shard files: the writer of each checks it with `check_file`, so that no rank checks all of
/// them.
[[nodiscard]] Manifest open_manifest(const std::string& path);
void check_file(const std::string& path, const SavedFile& file);
/// Throws CheckpointError with a remedy if `path` was not written by a save.
void require_checkpoint(const std::string& path);
/// The manifest, as the JSON that `parse_manifest` reads: for one rank that reads and many that receive it.
[[nodiscard]] std::string open_manifest_text(const std::string& path);
/// Path of the manifest, for messages: "<path>/index.h5".
[[nodiscard]] std::string index_path(const std::string& path);

/// Removes files of interrupted saves and removals. The caller holds the directory's lock: otherwise they may belong to
/// another run's save in progress. Warns of files that cannot be removed.
void clean_leftovers(const std::string& directory);

/// Renames every checkpoint of a step after `step` to `set-aside-<n>-<its name>`: a run resumed from an older
/// checkpoint would otherwise mix two branches. Logs each. Throws WriteError.
void set_aside_newer(const std::string& directory, std::int64_t step);

/// Removes one checkpoint, which is renamed first, so that a kill leaves no partial one. Warns of files that remain.
void remove_checkpoint(const std::string& path);

/// Checkpoints that the run `run_id`, which has just saved `saved`, removes when it keeps its `keep` newest
/// checkpoints, those of every `keep_every`-th step (0: none) and that of step `best`. Only checkpoints committed by
/// this run count and are removed. Checkpoints that end in skipped steps do not count in `keep`: the next save replaces
/// them. in_streak: `saved` is such a checkpoint, and replaces no others. Throws ReadError.
[[nodiscard]] std::vector<std::string> old_checkpoints(const std::string& saved, const std::string& run_id,
                                                       std::int64_t keep, std::int64_t keep_every,
                                                       std::int64_t best = -1, bool in_streak = false);

/// The newest checkpoint in `directory` up to `step` that does not end in skipped steps; "" if there is none. Ignores
/// damaged and unreadable ones.
[[nodiscard]] std::string newest_without_skipped_steps(const std::string& directory, std::int64_t step);

}  // namespace trireme::checkpoint

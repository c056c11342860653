// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/group_file.hpp"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <optional>

#include "base/io/disk_space.hpp"
#include "checkpoint/save/checked_mpi_io.hpp"
#include "checkpoint/save/fill_file.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::checkpoint {
namespace {

template <class Work>
std::exception_ptr failure_of(Work&& work) {
  try {
    work();
  } catch (const std::exception&) {
    return std::current_exception();
  }
  return nullptr;
}

/// Throws on every rank when any had a failure: there its own. Collective.
void settle(const mpi::Communicator& group, const std::exception_ptr& failure) {
  if (!mpi::any_rank(group, failure != nullptr)) return;
  if (failure) std::rethrow_exception(failure);
  throw FailedElsewhere();
}

/// One step that talks to nobody; the next one begins when it went well everywhere. Collective.
template <class Work>
void step(const mpi::Communicator& group, Work&& work) {
  settle(group, failure_of(work));
}

std::string torn_text(const std::string& name, const std::string& why) {
  return fmt::format(
      "{}: HDF5 failed on one rank of the group that writes it, and the others cannot close it "
      "without that one, so the job ends: {}; checkpoint.ranks_per_file = 1 has no such groups",
      name, why);
}

[[noreturn]] void torn(const mpi::Communicator& group, const std::string& name, h5::Writer& file,
                       const std::exception_ptr& failure) {
  file.abandon();
  std::string why;
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    why = error.what();
  }
  throw TornFile(torn_text(name, mpi::agree_on_failure(group, why)));
}

/// A call in which HDF5 talks to the other ranks. Where it fails on this one, the others may wait inside it for ever,
/// and for them every collective would: this rank ends the job by itself.
template <class Call>
void call_together(const std::string& name, Call&& call) {
  const auto end_job = [&](const std::string& why) { mpi::abort_job(ExitCode::write, torn_text(name, why)); };
  const CheckedMpiIo check(end_job);
  try {
    call();
  } catch (const WriteError& error) {
    end_job(error.what());
  }
}

/// Space for the first `bytes` bytes of a file that is there.
void reserve(const std::string& name, std::int64_t bytes) {
  io::require_file_size(name, bytes);
  io::File::update(name).reserve(bytes);
}

/// An HDF5 file with all datasets in place and nothing in them. Of HDF5's calls only the first and the last ones talk
/// to the other ranks. Before each of these all have agreed that nobody failed, and nobody leaves in between; what
/// fails inside them ends the job.
void lay_out(const mpi::Communicator& group, const std::string& name, std::vector<PlannedDataset>& planned) {
  const h5::Hdf5Lock lock;
  std::optional<h5::Writer> file;
  call_together(name, [&] { file.emplace(name, group.handle()); });
  std::exception_ptr failure = failure_of([&] {
    place_datasets(*file, planned);
    reserve(name, most_bytes(planned));  // HDF5 has emptied the file; it cuts it to its size when it closes it
    if (fault::point("ckpt.torn")) throw WriteError("fault injected at ckpt.torn");
  });
  if (mpi::any_rank(group, failure != nullptr)) torn(group, name, *file, failure);
  failure = failure_of([] { (void)fault::point("ckpt.close"); });
  call_together(name, [&] { file->close(); });
  settle(group, failure);
}

/// Every rank's checksums in the slices of the group's first one. Collective.
void gather_checksums(const mpi::Communicator& group, int first_dp_rank, std::vector<PlannedDataset>& planned) {
  const auto slices_of = [&](int dp_rank, auto&& visit) {
    for (PlannedDataset& one : planned)
      for (const PlannedPart& part : one.parts)
        if (part.dp_rank == dp_rank)
          for (std::size_t s = part.first_slice; s < part.end_slice; ++s) visit(one.dataset.slices[s]);
  };
  std::string mine;
  slices_of(first_dp_rank + group.rank(), [&](const SavedSlice& slice) {
    const auto bytes = std::as_bytes(std::span(slice.checksums));
    mine.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  const std::vector<std::string> all = mpi::gather_texts(group, mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    std::size_t at = 0;
    slices_of(first_dp_rank + static_cast<int>(rank), [&](SavedSlice& slice) {
      slice.checksums.resize(static_cast<std::size_t>(slice.chunks()));
      const std::size_t bytes = slice.checksums.size() * sizeof(std::uint64_t);
      invariant(at + bytes <= all[rank].size(), "a rank sends the checksums of all its slices");
      std::memcpy(slice.checksums.data(), all[rank].data() + at, bytes);
      at += bytes;
    });
  }
}

}  // namespace

WrittenFile write_group_file(const mpi::Communicator& group, const std::string& path, const Shards& shards,
                             std::int64_t ranks_per_file, const Meanwhile& meanwhile) {
  const bool first = group.rank() == 0;
  SavedFile saved{.pipeline_rank = shards.at.pipeline, .tensor_rank = shards.at.tensor, .datasets = {}};
  std::string name;
  std::vector<PlannedDataset> planned;
  step(group, [&] {
    const Writers writers = writers_of(shards.mesh, shards.dp_rank(), ranks_per_file);
    saved.dp_rank = writers.first;
    saved.path = shard_path(shards.mesh, shards.at.pipeline, writers.first, shards.at.tensor);
    name = path + "/" + saved.path;
    planned = plan_file(shards, writers);
    if (first) (void)io::File::create(name);
  });
  // What keeps a rank from writing it is found before HDF5 tries; each asks for itself, as ranks of several nodes may
  // have several limits.
  step(group, [&] { reserve(name, most_bytes(planned)); });
  lay_out(group, name, planned);
  step(group, [&] { reserve(name, io::status_of(name).bytes); });
  std::vector<WrittenChunk> chunks;
  step(group, [&] { chunks = fill(name, shards, planned, meanwhile); });
  gather_checksums(group, saved.dp_rank, planned);
  if (first) return described(path, std::move(saved), planned, std::move(chunks));
  WrittenFile written{.first = false, .saved = std::move(saved), .datasets = {}, .chunks = std::move(chunks)};
  for (const PlannedDataset& one : planned) written.datasets.push_back(one.dataset.name);
  return written;
}

}  // namespace trireme::checkpoint

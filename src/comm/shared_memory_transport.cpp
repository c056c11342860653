// SPDX-License-Identifier: Apache-2.0
#include "comm/shared_memory_transport.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/messages.hpp"
#include "comm/node/mapped_memory.hpp"
#include "comm/node/shared_segment.hpp"
#include "comm/node/shared_windows.hpp"
#include "comm/sum.hpp"
#include "trireme/base/ceil_div.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/streaming.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/device/buffer.hpp"

namespace trireme::comm {
namespace {

void copy_bytes(const std::byte* from, std::byte* to, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

class SharedMemoryTransport final : public Transport {
 public:
  SharedMemoryTransport(const mpi::Communicator& communicator, const StagingSource& source, Bytes staging_bytes)
      : rank_(communicator.rank()),
        size_(communicator.size()),
        windows_(rank_, size_),
        segment_(communicator, static_cast<std::size_t>(staging_bytes.value)) {
    if (source.charge) charge_ = source.charge(2 * segment_.half_bytes());
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string name() const override { return "shared_memory"; }

  void all_gather(const std::byte* mine, std::byte* whole, Parts bytes, mpi::Wait& wait) override;
  void reduce_scatter(const float* whole, float* mine, Parts elements, DType wire, bool accumulate,
                      mpi::Wait& wait) override;
  void all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                  std::span<const std::int64_t> received, mpi::Wait& wait) override;
  void broadcast(std::span<std::byte> bytes, int root, mpi::Wait& wait) override;
  void barrier(mpi::Wait& wait) override;
  bool add_window(const at::Tensor& memory, WindowUse use, mpi::Wait& wait) override;
  at::Tensor common_memory(std::int64_t elements, DType type, mpi::Wait& wait) override;

 private:
  /// memory: of the same number of bytes on all ranks, or undefined if a rank has none.
  bool share(SharedWindows::Kind kind, const at::Tensor& memory, std::size_t bytes, mpi::Wait& wait);
  // The largest of the ranks' values: a separate round.
  [[nodiscard]] std::int64_t largest(std::int64_t mine, mpi::Wait& wait);
  template <class Term>
  void reduce(const float* whole, float* mine, Parts elements, bool accumulate, mpi::Wait& wait);

  // Runs `rounds` rounds: write(i) fills this rank's half, read(i) uses the others', one round behind.
  template <class Write, class Read>
  void exchange(std::int64_t rounds, mpi::Wait& wait, Write&& write, Read&& read);

  [[nodiscard]] std::int64_t half_bytes() const { return static_cast<std::int64_t>(segment_.half_bytes()); }

  int rank_;
  int size_;
  SharedWindows windows_;
  SharedSegment segment_;
  std::shared_ptr<void> charge_;
};

template <class Write, class Read>
void SharedMemoryTransport::exchange(std::int64_t rounds, mpi::Wait& wait, Write&& write, Read&& read) {
  const auto write_round = [&](std::int64_t round) {
    segment_.await_free(wait);
    write(round);
    segment_.publish();
  };
  if (rounds > 0) write_round(0);
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round + 1 < rounds) write_round(round + 1);
    read(round);
    segment_.release();
  }
}

void SharedMemoryTransport::all_gather(const std::byte* mine, std::byte* whole, Parts bytes, mpi::Wait& wait) {
  std::byte* const own = whole + bytes.begin(rank_);
  if (mine == own && windows_.find(SharedWindows::Kind::home, whole, bytes.total) != nullptr) return barrier(wait);
  if (windows_.find(SharedWindows::Kind::common, whole, bytes.total) != nullptr) {
    barrier(wait);  // no rank reads the former values
    if (mine != own) stream_copy(mine, own, static_cast<std::size_t>(bytes.length(rank_)));
    return barrier(wait);
  }
  if (mine != own) copy_bytes(mine, own, bytes.length(rank_));
  const std::int64_t chunk = half_bytes();
  const auto length = [&](int rank, std::int64_t round) {
    return std::clamp<std::int64_t>(bytes.length(rank) - round * chunk, 0, chunk);
  };
  exchange(
      ceil_div(bytes.part, chunk), wait,
      [&](std::int64_t round) { copy_bytes(own + round * chunk, segment_.mine(), length(rank_, round)); },
      [&](std::int64_t round) {
        for (int step = 1; step < size_; ++step) {
          const int from = (rank_ + step) % size_;
          segment_.await(from, wait);
          copy_bytes(segment_.of(from), whole + bytes.begin(from) + round * chunk, length(from, round));
        }
      });
}

void SharedMemoryTransport::reduce_scatter(const float* whole, float* mine, Parts elements, DType wire, bool accumulate,
                                           mpi::Wait& wait) {
  if (wire == DType::bf16) return reduce<Bf16>(whole, mine, elements, accumulate, wait);
  const SharedWindows::Window* const window = windows_.find(SharedWindows::Kind::own, whole, 4 * elements.total);
  if (window == nullptr) return reduce<float>(whole, mine, elements, accumulate, wait);
  const std::int64_t part =
      reinterpret_cast<const std::byte*>(whole + elements.begin(rank_)) - window->of[static_cast<std::size_t>(rank_)];
  std::vector<const float*> terms(static_cast<std::size_t>(size_));
  for (std::size_t rank = 0; rank < terms.size(); ++rank)
    terms[rank] = reinterpret_cast<const float*>(window->of[rank] + part);
  barrier(wait);
  sum_terms(std::span<const float* const>(terms), mine, elements.length(rank_), accumulate);
  barrier(wait);  // all ranks have read this rank's terms
}

// A half holds a slot for every owner, by rank. In fp32 the own term is taken from `whole`, and its slot stays unused.
template <class Term>
void SharedMemoryTransport::reduce(const float* whole, float* mine, Parts elements, bool accumulate, mpi::Wait& wait) {
  constexpr bool rounds_terms = sizeof(Term) == 2;
  constexpr std::int64_t alignment = 64 / sizeof(Term);
  const std::int64_t chunk = half_bytes() / (size_ * static_cast<std::int64_t>(sizeof(Term))) / alignment * alignment;
  invariant(chunk > 0, "a shared segment has room for every rank");
  const auto length = [&](int rank, std::int64_t round) {
    return std::clamp<std::int64_t>(elements.length(rank) - round * chunk, 0, chunk);
  };
  std::vector<const Term*> terms(static_cast<std::size_t>(size_));
  exchange(
      ceil_div(elements.part, chunk), wait,
      [&](std::int64_t round) {
        Term* const slots = reinterpret_cast<Term*>(segment_.mine());
        for (int owner = 0; owner < size_; ++owner) {
          const float* const term = whole + elements.begin(owner) + round * chunk;
          if constexpr (rounds_terms)
            round_to_bf16(term, slots + owner * chunk, length(owner, round));
          else if (owner != rank_)
            copy_bytes(reinterpret_cast<const std::byte*>(term), reinterpret_cast<std::byte*>(slots + owner * chunk),
                       4 * length(owner, round));
        }
      },
      [&](std::int64_t round) {
        for (int from = 0; from < size_; ++from) {
          if (from != rank_) segment_.await(from, wait);
          terms[static_cast<std::size_t>(from)] = reinterpret_cast<const Term*>(segment_.of(from)) + rank_ * chunk;
        }
        if constexpr (!rounds_terms)
          terms[static_cast<std::size_t>(rank_)] = whole + elements.begin(rank_) + round * chunk;
        sum_terms(std::span<const Term* const>(terms), mine + round * chunk, length(rank_, round), accumulate);
      });
}

std::int64_t SharedMemoryTransport::largest(std::int64_t mine, mpi::Wait& wait) {
  std::int64_t found = mine;
  exchange(
      1, wait, [&](std::int64_t) { std::memcpy(segment_.mine(), &mine, sizeof mine); },
      [&](std::int64_t) {
        for (int from = 0; from < size_; ++from) {
          if (from == rank_) continue;
          segment_.await(from, wait);
          std::int64_t theirs = 0;
          std::memcpy(&theirs, segment_.of(from), sizeof theirs);
          found = std::max(found, theirs);
        }
      });
  return found;
}

// A half holds a slot for every other rank; the longest message of all ranks determines the number of rounds.
void SharedMemoryTransport::all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                                       std::span<const std::int64_t> received, mpi::Wait& wait) {
  const std::vector<std::int64_t> going = begins(sent), coming = begins(received);
  const auto own = static_cast<std::size_t>(rank_);
  copy_bytes(out + going[own], in + coming[own], sent[own]);
  const std::int64_t chunk = half_bytes() / size_ / 64 * 64;
  invariant(chunk > 0, "a shared segment has room for every rank");
  const auto length = [&](std::span<const std::int64_t> bytes, std::size_t rank, std::int64_t round) {
    return std::clamp<std::int64_t>(bytes[rank] - round * chunk, 0, chunk);
  };
  exchange(
      ceil_div(largest(*std::max_element(sent.begin(), sent.end()), wait), chunk), wait,
      [&](std::int64_t round) {
        for (std::size_t to = 0; to < sent.size(); ++to)
          if (to != own)
            copy_bytes(out + going[to] + round * chunk, segment_.mine() + static_cast<std::int64_t>(to) * chunk,
                       length(sent, to, round));
      },
      [&](std::int64_t round) {
        for (int step = 1; step < size_; ++step) {
          const int from = (rank_ + step) % size_;
          const auto theirs = static_cast<std::size_t>(from);
          segment_.await(from, wait);
          copy_bytes(segment_.of(from) + rank_ * chunk, in + coming[theirs] + round * chunk,
                     length(received, theirs, round));
        }
      });
}

void SharedMemoryTransport::broadcast(std::span<std::byte> bytes, int root, mpi::Wait& wait) {
  const std::int64_t chunk = half_bytes();
  const auto total = static_cast<std::int64_t>(bytes.size());
  const auto length = [&](std::int64_t round) { return std::min(chunk, total - round * chunk); };
  exchange(
      ceil_div(total, chunk), wait,
      [&](std::int64_t round) {
        if (rank_ == root) copy_bytes(bytes.data() + round * chunk, segment_.mine(), length(round));
      },
      [&](std::int64_t round) {
        if (rank_ == root) return;
        segment_.await(root, wait);
        copy_bytes(segment_.of(root), bytes.data() + round * chunk, length(round));
      });
}

void SharedMemoryTransport::barrier(mpi::Wait& wait) {
  exchange(
      1, wait, [](std::int64_t) {},
      [&](std::int64_t) {
        for (int rank = 0; rank < size_; ++rank)
          if (rank != rank_) segment_.await(rank, wait);
      });
}

bool SharedMemoryTransport::add_window(const at::Tensor& memory, WindowUse use, mpi::Wait& wait) {
  if (use == WindowUse::part || !device::has_own_pages(memory)) return true;
  return share(use == WindowUse::gathered ? SharedWindows::Kind::common : SharedWindows::Kind::own, memory,
               memory.nbytes(), wait);
}

at::Tensor SharedMemoryTransport::common_memory(std::int64_t elements, DType type, mpi::Wait& wait) {
  const at::Tensor memory = mapped_memory(elements, type);
  const auto bytes = static_cast<std::size_t>(elements * size_of(type));
  return share(SharedWindows::Kind::home, memory, bytes, wait) ? memory : at::Tensor();
}

bool SharedMemoryTransport::share(SharedWindows::Kind kind, const at::Tensor& memory, std::size_t bytes,
                                  mpi::Wait& wait) {
  auto* const begin = memory.defined() ? static_cast<std::byte*>(memory.mutable_data_ptr()) : nullptr;
  return windows_.add(kind, begin, bytes, [&](std::span<const std::byte> mine, std::span<std::byte> all) {
    const auto part = static_cast<std::int64_t>(mine.size());
    all_gather(mine.data(), all.data(), {.total = part * size_, .part = part}, wait);
  });
}

}  // namespace

bool within_one_node(const mpi::Communicator& communicator) {
  return communicator.node().size() == communicator.size();
}

std::unique_ptr<Transport> shared_memory_transport(const mpi::Communicator& communicator, const StagingSource& staging,
                                                   Bytes staging_bytes) {
  return std::make_unique<SharedMemoryTransport>(communicator, staging, staging_bytes);
}

}  // namespace trireme::comm

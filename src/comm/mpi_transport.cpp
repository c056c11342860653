// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_transport.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "comm/messages.hpp"
#include "comm/staging.hpp"
#include "comm/sum.hpp"
#include "mpi/requests.hpp"
#include "trireme/comm/transport.hpp"

namespace trireme::comm {
namespace {

constexpr std::int64_t small_bytes = 64 << 10;  // below, MPI's own all-gather: O(log ranks) messages
constexpr int partners_in_flight = 8;           // of a large all-gather

class MpiTransport final : public Transport {
 public:
  MpiTransport(const mpi::Communicator& communicator, StagingSource source, Bytes staging_bytes)
      : communicator_(&communicator), source_(std::move(source)), staging_bytes_(staging_bytes.value) {}

  [[nodiscard]] int rank() const override { return communicator_->rank(); }
  [[nodiscard]] int size() const override { return communicator_->size(); }
  [[nodiscard]] std::string name() const override { return "mpi"; }

  void all_gather(const std::byte* mine, std::byte* whole, Parts bytes, mpi::Wait& wait) override;
  void reduce_scatter(const float* whole, float* mine, Parts elements, DType wire, bool accumulate,
                      mpi::Wait& wait) override;
  void all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                  std::span<const std::int64_t> received, mpi::Wait& wait) override;
  void broadcast(std::span<std::byte> bytes, int root, mpi::Wait& wait) override;
  void barrier(mpi::Wait& wait) override;
  void exchange(const std::byte* out, std::byte* in, std::int64_t bytes, int peer, mpi::Wait& wait) override;

 private:
  template <class Term>
  class Exchange;

  // The rank that is `step` places further in the ring: every rank begins with another partner.
  [[nodiscard]] int partner(int step) const { return (rank() + step + size()) % size(); }
  std::byte* staging(std::int64_t bytes);

  const mpi::Communicator* communicator_;
  StagingSource source_;
  std::int64_t staging_bytes_;
  std::shared_ptr<std::byte[]> staging_;
  std::int64_t staging_size_ = 0;
};

std::byte* MpiTransport::staging(std::int64_t bytes) {
  if (bytes > staging_size_) {
    staging_.reset();
    staging_ = allocate_staging(source_, static_cast<std::size_t>(bytes));
    staging_size_ = bytes;
  }
  return staging_.get();
}

void MpiTransport::all_gather(const std::byte* mine, std::byte* whole, Parts bytes, mpi::Wait& wait) {
  std::byte* const own = whole + bytes.begin(rank());
  if (mine != own && bytes.length(rank()) > 0) std::memcpy(own, mine, static_cast<std::size_t>(bytes.length(rank())));
  mpi::Requests requests(*communicator_);
  if (bytes.total <= small_bytes && bytes.total == bytes.part * size()) {
    mpi::check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, static_cast<int>(bytes.part), MPI_BYTE,
                              communicator_->handle(), requests.collective()),
               "start an all-gather");
    requests.wait_all(wait);
    return;
  }
  for (int first = 1; first < size(); first += partners_in_flight) {
    for (int step = first; step < std::min(first + partners_in_flight, size()); ++step) {
      const int from = partner(-step);
      requests.receive(whole + bytes.begin(from), bytes.length(from), from);
      requests.send(own, bytes.length(rank()), partner(step));
    }
    requests.wait_all(wait);
  }
}

void MpiTransport::all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                              std::span<const std::int64_t> received, mpi::Wait& wait) {
  const std::vector<std::int64_t> going = begins(sent), coming = begins(received);
  const auto own = static_cast<std::size_t>(rank());
  if (sent[own] > 0) std::memcpy(in + coming[own], out + going[own], static_cast<std::size_t>(sent[own]));
  mpi::Requests requests(*communicator_);
  for (int first = 1; first < size(); first += partners_in_flight) {
    for (int step = first; step < std::min(first + partners_in_flight, size()); ++step) {
      const auto from = static_cast<std::size_t>(partner(-step)), to = static_cast<std::size_t>(partner(step));
      requests.receive(in + coming[from], received[from], partner(-step));
      requests.send(out + going[to], sent[to], partner(step));
    }
    requests.wait_all(wait);
  }
}

// One chunk of an all-to-all: this rank receives its part from all ranks and sends every rank its part.
// Terms are fp32, sent straight from the buffer, or bf16, which are rounded into staging first.
template <class Term>
class MpiTransport::Exchange {
 public:
  static constexpr bool rounds = sizeof(Term) == 2;
  // Slots of a chunk: a received part for every other rank; rounded, a part to send for every rank and the own term.
  [[nodiscard]] static std::int64_t slots(int ranks) { return rounds ? 2 * ranks - 1 : ranks - 1; }

  Exchange(MpiTransport& transport, const float* whole, Parts elements, std::int64_t chunk, std::byte* staging)
      : t_(transport),
        whole_(whole),
        elements_(elements),
        chunk_(chunk),
        staging_(reinterpret_cast<Term*>(staging)),
        requests_(*t_.communicator_) {}

  // Elements of rank's part in the chunk that begins at `first`.
  [[nodiscard]] std::int64_t length(int rank, std::int64_t first) const {
    return std::clamp<std::int64_t>(elements_.length(rank) - first, 0, chunk_);
  }

  void start(std::int64_t first) {
    first_ = first;
    for (int step = 1; step < t_.size(); ++step) {
      const int from = t_.partner(-step);
      requests_.receive(slot(step - 1), length(t_.rank(), first) * static_cast<std::int64_t>(sizeof(Term)), from);
    }
    for (int step = 1; step < t_.size(); ++step) {
      const int to = t_.partner(step);
      requests_.send(term(to, t_.size() - 2 + step), length(to, first) * static_cast<std::int64_t>(sizeof(Term)), to);
    }
  }

  void finish(float* mine, bool accumulate, mpi::Wait& wait) {
    requests_.wait_all(wait);
    terms_.resize(static_cast<std::size_t>(t_.size()));
    for (int step = 1; step < t_.size(); ++step) terms_[static_cast<std::size_t>(t_.partner(-step))] = slot(step - 1);
    terms_[static_cast<std::size_t>(t_.rank())] = term(t_.rank(), 2 * t_.size() - 2);
    sum_terms(std::span<const Term* const>(terms_), mine + first_, length(t_.rank(), first_), accumulate);
  }

 private:
  [[nodiscard]] Term* slot(int index) const { return staging_ + index * chunk_; }

  // Our term for `to`, rounded into a slot when that is needed.
  [[nodiscard]] const Term* term(int to, int index) const {
    const float* const exact = whole_ + elements_.begin(to) + first_;
    if constexpr (rounds) {
      round_to_bf16(exact, slot(index), length(to, first_));
      return slot(index);
    } else {
      return exact;
    }
  }

  MpiTransport& t_;
  const float* whole_;
  Parts elements_;
  std::int64_t chunk_;
  Term* staging_;
  mpi::Requests requests_;
  std::int64_t first_ = 0;
  std::vector<const Term*> terms_;
};

void MpiTransport::reduce_scatter(const float* whole, float* mine, Parts elements, DType wire, bool accumulate,
                                  mpi::Wait& wait) {
  const auto run = [&]<class Term>(Term) {
    const std::int64_t chunk_slots = Exchange<Term>::slots(size()) * static_cast<std::int64_t>(sizeof(Term));
    const std::int64_t chunk = std::min(elements.part, chunk_elements(chunk_slots, Bytes{staging_bytes_}));
    std::byte* const memory = staging(2 * chunk * chunk_slots);
    // Two chunks are in progress: one arrives while the other is summed.
    std::array<Exchange<Term>, 2> chunks{Exchange<Term>(*this, whole, elements, chunk, memory),
                                         Exchange<Term>(*this, whole, elements, chunk, memory + chunk * chunk_slots)};
    std::size_t turn = 0;
    chunks[turn].start(0);
    for (std::int64_t first = 0; first < elements.part; first += chunk, turn ^= 1U) {
      if (first + chunk < elements.part) chunks[turn ^ 1U].start(first + chunk);
      chunks[turn].finish(mine, accumulate, wait);
    }
  };
  if (elements.total == 0) return;
  if (wire == DType::bf16)
    run(Bf16{});
  else
    run(float{});
}

void MpiTransport::broadcast(std::span<std::byte> bytes, int root, mpi::Wait& wait) {
  constexpr std::size_t piece = std::size_t{1} << 30;
  mpi::Requests requests(*communicator_);
  for (std::size_t done = 0; done < bytes.size(); done += piece) {
    const std::size_t length = std::min(piece, bytes.size() - done);
    mpi::check(MPI_Ibcast(bytes.data() + done, static_cast<int>(length), MPI_BYTE, root, communicator_->handle(),
                          requests.collective()),
               "start a broadcast");
    requests.wait_all(wait);
  }
}

void MpiTransport::barrier(mpi::Wait& wait) {
  mpi::Requests requests(*communicator_);
  mpi::check(MPI_Ibarrier(communicator_->handle(), requests.collective()), "start a barrier");
  requests.wait_all(wait);
}

void MpiTransport::exchange(const std::byte* out, std::byte* in, std::int64_t bytes, int peer, mpi::Wait& wait) {
  mpi::Requests requests(*communicator_);
  if (in != nullptr) requests.receive(in, bytes, peer);
  if (out != nullptr) requests.send(out, bytes, peer);
  requests.wait_all(wait);
}

}  // namespace

std::int64_t chunk_elements(std::int64_t slot_bytes, Bytes staging_bytes) {
  constexpr std::int64_t long_enough = 1024, least = 16;
  const std::int64_t wanted = std::max(long_enough, staging_bytes.value / (2 * slot_bytes));
  const std::int64_t most = std::max(staging_bytes, most_mpi_staging).value / (2 * slot_bytes);
  return std::max(least, std::min(wanted, most));
}

std::unique_ptr<Transport> mpi_transport(const mpi::Communicator& communicator, const StagingSource& staging,
                                         Bytes staging_bytes) {
  return std::make_unique<MpiTransport>(communicator, staging, staging_bytes);
}

}  // namespace trireme::comm

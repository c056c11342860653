// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "comm/cuda/nccl.hpp"
#include "comm/cuda/nccl_watch.hpp"
#include "comm/cuda/terms.hpp"
#include "comm/device_memory.hpp"
#include "comm/messages.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::comm {
namespace {

/// Terms of a reduction with bf16 on the wire that are packed at once: over all ranks, but in messages of at least 64
/// KiB, below which networks are slow.
constexpr std::int64_t packed_elements = std::int64_t{8} << 20, least_elements = std::int64_t{32} << 10;
constexpr std::int64_t pack = 8;  // of 16 bytes: parts of an all-reduce begin at them

/// bf16 [ranks, count] from `sent`, row r for rank r, into `received`, row r from rank r.
ncclResult_t exchange_terms(const at::Tensor& sent, const at::Tensor& received, ncclComm_t comm, cudaStream_t on) {
  const auto count = static_cast<std::size_t>(sent.size(1));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  return ncclAlltoAll(sent.const_data_ptr(), received.mutable_data_ptr(), count, ncclBfloat16, comm, on);
#else
  return nccl::grouped([&] {
    ncclResult_t called = ncclSuccess;
    for (int rank = 0; rank < static_cast<int>(sent.size(0)) && !nccl::failed(called); ++rank) {
      called = ncclSend(sent[rank].const_data_ptr(), count, ncclBfloat16, rank, comm, on);
      if (!nccl::failed(called))
        called = ncclRecv(received[rank].mutable_data_ptr(), count, ncclBfloat16, rank, comm, on);
    }
    return called;
  });
#endif
}

class NcclTransport final : public DeviceTransport {
 public:
  /// how: the arguments of the communicator's Handle.
  template <class... How>
  NcclTransport(const mpi::Communicator& communicator, c10::Device device, bool windows, const How&... how)
      : DeviceTransport(device),
        rank_(communicator.rank()),
        size_(communicator.size()),
        windows_(windows),
        handle_(how...),
        watch_(handle_) {}

  [[nodiscard]] const nccl::Handle& handle() const { return handle_; }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string name() const override { return "nccl"; }

  void all_gather(const std::byte* mine, std::byte* whole, Parts parts, mpi::Wait& wait) override {
    invariant(parts.total == parts.part * size_, "NCCL gathers equal parts");
    begin();
    const auto count = static_cast<std::size_t>(parts.part);
    handle_.launch("gather", wait,
                   [&](ncclComm_t comm) { return ncclAllGather(mine, whole, count, ncclInt8, comm, stream()); });
  }

  void reduce_scatter(const float* whole, float* mine, Parts parts, DType wire, bool accumulate,
                      mpi::Wait& wait) override {
    invariant(parts.total == parts.part * size_, "NCCL scatters equal parts");
    begin();
    at::Tensor to = floats(mine, {parts.part});
    if (wire == DType::fp32) {
      // In place where the sum is added to other values: no separate memory.
      const at::Tensor sum = accumulate ? floats(whole + parts.begin(rank_), {parts.part}) : to;
      handle_.launch("reduce and scatter", wait, [&](ncclComm_t comm) {
        return ncclReduceScatter(whole, sum.mutable_data_ptr(), static_cast<std::size_t>(parts.part), ncclFloat32,
                                 ncclSum, comm, stream());
      });
      if (accumulate) to.add_(sum);
      return;
    }
    const std::int64_t most = std::max(least_elements, packed_elements / size_);
    for (std::int64_t first = 0; first < parts.part; first += most)
      exchange_and_sum(whole + first, parts.part, std::min(most, parts.part - first), mine + first, accumulate, wait);
  }

  void all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                  std::span<const std::int64_t> received, mpi::Wait& wait) override {
    begin();
    const std::vector<std::int64_t> going = begins(sent), coming = begins(received);
    handle_.launch("exchange messages", wait, [&](ncclComm_t comm) {
      return nccl::grouped([&] {
        ncclResult_t called = ncclSuccess;
        for (int rank = 0; rank < size_ && !nccl::failed(called); ++rank) {
          const auto r = static_cast<std::size_t>(rank);
          if (sent[r] > 0)
            called = ncclSend(out + going[r], static_cast<std::size_t>(sent[r]), ncclInt8, rank, comm, stream());
          if (received[r] > 0 && !nccl::failed(called))
            called = ncclRecv(in + coming[r], static_cast<std::size_t>(received[r]), ncclInt8, rank, comm, stream());
        }
        return called;
      });
    });
  }

  bool all_reduce(float* data, std::int64_t elements, DType wire, mpi::Wait& wait) override {
    begin();
    if (wire == DType::fp32) {
      handle_.launch("reduce", wait, [&](ncclComm_t comm) {
        return ncclAllReduce(data, data, static_cast<std::size_t>(elements), ncclFloat32, ncclSum, comm, stream());
      });
      return true;
    }
    const device::ChargeTo charge(device::Category::communication);
    for (std::int64_t first = 0; first < elements; first += packed_elements)
      sum_everywhere(data + first, std::min(packed_elements, elements - first), wait);
    return true;
  }

  bool add_window(const at::Tensor& memory, WindowUse, mpi::Wait& wait) override {
    begin();
    if (windows_) handle_.add_window(memory, wait);  // or an error
    return true;
  }

  /// Registers the two buffers of terms with bf16 on the wire. Collective.
  void add_wire_windows(mpi::Wait& wait) {
    const std::int64_t most = std::max(packed_elements, least_elements * size_) + pack * size_;
    for (at::Tensor& buffer : wire_) {
      buffer = window_memory(device::Category::communication, most, DType::bf16, device());
      handle_.add_window(buffer, wait);
    }
  }

  void gather_values(const std::byte* mine, std::byte* all, Parts parts, mpi::Wait& wait) override {
    const at::Tensor own = tensor_at(mine, {parts.part}, at::kByte, at::kCPU).to(device());
    const at::Tensor gathered = at::empty({parts.total}, own.options());
    all_gather(static_cast<const std::byte*>(own.const_data_ptr()),
               static_cast<std::byte*>(gathered.mutable_data_ptr()), parts, wait);
    to_host(gathered, all, wait);
  }

  void broadcast(std::span<std::byte> values, int root, mpi::Wait& wait) override {
    begin();
    const auto count = static_cast<std::int64_t>(values.size());
    const at::Tensor there = tensor_at(values.data(), {count}, at::kByte, at::kCPU).to(device());
    handle_.launch("broadcast", wait, [&](ncclComm_t comm) {
      return ncclBroadcast(there.const_data_ptr(), there.mutable_data_ptr(), values.size(), ncclInt8, root, comm,
                           stream());
    });
    to_host(there, values.data(), wait);
  }

  void barrier(mpi::Wait& wait) override {
    std::byte mine{};
    std::vector<std::byte> all(static_cast<std::size_t>(size_));
    gather_values(&mine, all.data(), {.total = size_, .part = 1}, wait);
  }

  bool ends_later(mpi::FlightLane& lane, const mpi::Operation& operation, const mpi::Deadline& deadline,
                  const mpi::FlightRecorder& recorder) override {
    watch_.add(lane, operation, deadline, recorder, c10::cuda::getCurrentCUDAStream(device().index()).unwrap());
    return true;
  }

 private:
  void begin() { watch_.raise(); }
  [[nodiscard]] cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream(device().index()).stream(); }

  /// terms: [size, part] fp32, row r for rank r, of which the first `elements` columns count. sum[i] (+)= the sum, in
  /// fp32 and in rank order, of all ranks' terms for this one, rounded to bf16.
  void exchange_and_sum(const float* terms, std::int64_t part, std::int64_t elements, float* sum, bool accumulate,
                        mpi::Wait& wait) {
    const device::ChargeTo charge(device::Category::communication);
    const at::Tensor sent = wire(0, elements), received = wire(1, elements);
    cuda::pack_terms(terms, size_, part, elements, sent.mutable_data_ptr<c10::BFloat16>());
    handle_.launch("exchange", wait, [&](ncclComm_t comm) { return exchange_terms(sent, received, comm, stream()); });
    cuda::sum_terms(received.const_data_ptr<c10::BFloat16>(), size_, elements, sum, accumulate);
  }

  /// [size, columns] in bf16, for terms on the wire: new, or the beginning of one of two registered buffers of the most
  /// that a piece takes. On one stream each piece is done with before the next.
  at::Tensor wire(std::size_t which, std::int64_t columns) {
    const at::Tensor& buffer = wire_[which];
    if (!buffer.defined()) return at::empty({size_, columns}, at::TensorOptions(at::kBFloat16).device(device()));
    return buffer.narrow(0, 0, size_ * columns).view({size_, columns});
  }

  /// data [count] = the rounded sum of all ranks' rounded data: each rank sums a part of it. Two buffers of bf16, and
  /// three kernels in addition to NCCL's.
  void sum_everywhere(float* data, std::int64_t count, mpi::Wait& wait) {
    const std::int64_t part = ((count + size_ - 1) / size_ + pack - 1) / pack * pack;
    const at::Tensor terms = wire(0, part), received = wire(1, part);
    auto* const whole = terms.mutable_data_ptr<c10::BFloat16>();
    cuda::pack_whole(data, count, size_ * part, whole);
    handle_.launch("exchange", wait, [&](ncclComm_t comm) { return exchange_terms(terms, received, comm, stream()); });
    c10::BFloat16* const mine = whole + rank_ * part;
    cuda::sum_terms(received.const_data_ptr<c10::BFloat16>(), size_, part, mine);
    handle_.launch("gather sums", wait, [&](ncclComm_t comm) {  // in place
      return ncclAllGather(mine, whole, static_cast<std::size_t>(part), ncclBfloat16, comm, stream());
    });
    cuda::widen(whole, count, data);
  }

  /// Copies and returns when they are there, within the deadline.
  void to_host(const at::Tensor& from, std::byte* to, mpi::Wait& wait) {
    const c10::Stream here = c10::cuda::getCurrentCUDAStream(device().index()).unwrap();
    c10::Event done(c10::DeviceType::CUDA);
    const at::Tensor landing = at::empty(from.sizes(), from.options().device(at::kCPU).pinned_memory(true));
    landing.copy_(from, /*non_blocking=*/true);
    done.record(here);
    wait.until([&] { return done.query(); }, [] { return std::string("the other ranks of its group"); });
    std::memcpy(to, landing.const_data_ptr(), landing.nbytes());
  }

  int rank_, size_;
  bool windows_;
  std::array<at::Tensor, 2> wire_;
  nccl::Handle handle_;
  nccl::Watch watch_;  ///< after the handle: it ends before that
};

/// Whether windows are registered: all ranks are in one NVLink domain. Collective.
bool takes_windows(const mpi::Communicator& communicator, const NcclSettings& settings) {
  if (!settings.windows) return false;
  const std::vector<std::string> domains = mpi::gather_texts(communicator, settings.nvlink_domain);
  const bool several = std::ranges::any_of(domains, [&](const std::string& d) { return d != domains.front(); });
  const bool apart = mpi::any_rank(communicator, several);
  static std::atomic_flag warned;
  if (apart && communicator.job_rank(communicator.rank()) == 0 && !warned.test_and_set())
    log::warning(
        "comm.nccl_windows: groups that span several NVLink domains register no windows, for which NCCL has no kernels "
        "there");
  return !apart;
}

}  // namespace

std::unique_ptr<Transport> nccl_transport(const mpi::Communicator& communicator, c10::Device device,
                                          const mpi::Deadline& deadline, const Transport* first,
                                          const NcclSettings& settings) {
  const c10::cuda::CUDAGuard guard(device);
  const bool windows = takes_windows(communicator, settings);
  const auto* const split = dynamic_cast<const NcclTransport*>(first);
  invariant(first == nullptr ||
                (split != nullptr && split->size() == communicator.size() && split->rank() == communicator.rank()),
            "NCCL splits a communicator of the same ranks");
  auto made = split == nullptr
                  ? std::make_unique<NcclTransport>(communicator, device, windows, communicator, deadline, settings)
                  : std::make_unique<NcclTransport>(communicator, device, windows, split->handle(), communicator,
                                                    deadline, settings);
  if (windows && settings.bf16_wire) {
    mpi::FlightRecorder own;
    mpi::FlightRecorder& recorder = settings.recorder != nullptr ? *settings.recorder : own;
    mpi::FlightLane& lane = recorder.add_lane("windows of nccl");
    mpi::Wait wait(lane.begin("add_window", {0}), deadline, recorder);
    made->add_wire_windows(wait);
    lane.finish();
  }
  return made;
}

}  // namespace trireme::comm

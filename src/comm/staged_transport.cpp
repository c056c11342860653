// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "comm/all_reduce.hpp"
#include "comm/device_memory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/device/buffer.hpp"

namespace trireme::comm {
namespace {

/// Every piece is copied to the host, moved, copied back; copies wait, so that a piece's memory is free for the next.
class StagedTransport final : public DeviceTransport {
 public:
  StagedTransport(std::unique_ptr<Transport> host, c10::Device device, Bytes staging)
      : DeviceTransport(device),
        host_(std::move(host)),
        // Of every rank an element at least, and the own part beside the whole.
        elements_(std::max<std::int64_t>(staging.value / 4, 2 * host_->size())) {}

  [[nodiscard]] int rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }
  [[nodiscard]] std::string name() const override { return "staged " + host_->name(); }

  void all_gather(const std::byte* mine, std::byte* whole, Parts parts, mpi::Wait& wait) override {
    invariant(parts.total == parts.part * size(), "a staged all-gather has equal parts");
    const at::Tensor to = bytes(whole, {size(), parts.part});
    const at::Tensor from = bytes(mine, {parts.part});
    in_pieces(parts.part, 4, [&](std::int64_t first, std::int64_t count) {
      const at::Tensor part = memory(at::kByte, 0, {count});
      const at::Tensor all = memory(at::kByte, part_elements() * 4, {size(), count});
      part.copy_(from.narrow(0, first, count));
      host_->all_gather(static_cast<const std::byte*>(part.const_data_ptr()),
                        static_cast<std::byte*>(all.mutable_data_ptr()), {.total = size() * count, .part = count},
                        wait);
      to.narrow(1, first, count).copy_(all);
    });
  }

  void reduce_scatter(const float* whole, float* mine, Parts parts, DType wire, bool accumulate,
                      mpi::Wait& wait) override {
    invariant(parts.total == parts.part * size(), "a staged reduce-scatter has equal parts");
    const at::Tensor from = floats(whole, {size(), parts.part});
    at::Tensor to = floats(mine, {parts.part});
    in_pieces(parts.part, 1, [&](std::int64_t first, std::int64_t count) {
      const at::Tensor sum = memory(at::kFloat, 0, {count});
      const at::Tensor terms = memory(at::kFloat, part_elements(), {size(), count});
      terms.copy_(from.narrow(1, first, count));
      if (accumulate) sum.copy_(to.narrow(0, first, count));
      host_->reduce_scatter(terms.const_data_ptr<float>(), sum.mutable_data_ptr<float>(),
                            {.total = size() * count, .part = count}, wire, accumulate, wait);
      to.narrow(0, first, count).copy_(sum);
    });
  }

  bool all_reduce(float* data, std::int64_t elements, DType wire, mpi::Wait& wait) override {
    at::Tensor all = floats(data, {elements});
    for (std::int64_t first = 0; first < elements; first += elements_) {
      const std::int64_t count = std::min(elements_, elements - first);
      const at::Tensor piece = memory(at::kFloat, 0, {count});
      piece.copy_(all.narrow(0, first, count));
      all_reduce_(*host_, {}, piece.mutable_data_ptr<float>(), count, wire, wait);
      all.narrow(0, first, count).copy_(piece);
    }
    return true;
  }

  void broadcast(std::span<std::byte> bytes, int root, mpi::Wait& wait) override {
    host_->broadcast(bytes, root, wait);
  }
  void barrier(mpi::Wait& wait) override { host_->barrier(wait); }
  void gather_values(const std::byte* mine, std::byte* all, Parts bytes, mpi::Wait& wait) override {
    host_->gather_values(mine, all, bytes, wait);
  }

 private:
  /// Elements of one rank's part in a piece: the whole of a piece lies behind the own part.
  [[nodiscard]] std::int64_t part_elements() const { return elements_ / (size() + 1); }

  /// Calls body(first, count) for pieces of a part, `per_element` items to four bytes.
  template <class Body>
  void in_pieces(std::int64_t part, std::int64_t per_element, Body&& body) {
    const std::int64_t most = part_elements() * per_element;
    for (std::int64_t first = 0; first < part; first += most) body(first, std::min(most, part - first));
  }

  /// `shape` laid over the staging memory from item `offset` on.
  at::Tensor memory(at::ScalarType type, std::int64_t offset, at::IntArrayRef shape) {
    if (!staging_.defined())
      staging_ = device::buffer(device::Category::communication, elements_, DType::fp32, device::Space::host, device());
    auto* const begin = static_cast<std::byte*>(staging_.mutable_data_ptr());
    return tensor_at(begin + offset * (type == at::kFloat ? 4 : 1), shape, type, at::kCPU);
  }

  std::unique_ptr<Transport> host_;
  std::int64_t elements_;
  at::Tensor staging_;
  AllReduce all_reduce_;
};

}  // namespace

std::unique_ptr<Transport> staged_transport(std::unique_ptr<Transport> host, c10::Device device, Bytes staging_bytes) {
  return std::make_unique<StagedTransport>(std::move(host), device, staging_bytes);
}

}  // namespace trireme::comm

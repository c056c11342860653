// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "comm/all_reduce.hpp"
#include "comm/device_memory.hpp"
#include "comm/messages.hpp"
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
        // At least an element of every rank, and this rank's part in addition to the whole.
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

  void all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                  std::span<const std::int64_t> received, mpi::Wait& wait) override {
    const std::vector<std::int64_t> going = begins(sent), coming = begins(received);
    const auto ranks = static_cast<std::size_t>(size());
    const std::int64_t most = elements_ * 2 / size();  // bytes of a rank: half of the staging memory each way
    // All ranks take as many rounds as the longest message between any two.
    const std::int64_t mine = std::max(*std::ranges::max_element(sent), *std::ranges::max_element(received));
    std::vector<std::int64_t> longest(ranks);
    host_->gather_values(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(longest.data()),
                         {.total = std::int64_t{8} * size(), .part = 8}, wait);
    const std::int64_t end = *std::ranges::max_element(longest);
    for (std::int64_t first = 0; first < end; first += most) {
      const auto piece = [&](std::span<const std::int64_t> counts) {
        std::vector<std::int64_t> now(counts.begin(), counts.end());
        for (std::int64_t& count : now) count = std::clamp<std::int64_t>(count - first, 0, most);
        return now;
      };
      const std::vector<std::int64_t> out_now = piece(sent), in_now = piece(received);
      const std::vector<std::int64_t> out_at = begins(out_now), in_at = begins(in_now);
      const auto part = [&](std::int64_t offset, std::int64_t count) { return memory(at::kByte, offset, {count}); };
      for (std::size_t rank = 0; rank < ranks; ++rank)
        if (out_now[rank] > 0)
          part(out_at[rank], out_now[rank]).copy_(bytes(out + going[rank] + first, {out_now[rank]}));
      const at::Tensor from = part(0, elements_ * 2), to = part(elements_ * 2, elements_ * 2);
      host_->all_to_all(static_cast<const std::byte*>(from.const_data_ptr()), out_now,
                        static_cast<std::byte*>(to.mutable_data_ptr()), in_now, wait);
      for (std::size_t rank = 0; rank < ranks; ++rank)
        if (in_now[rank] > 0)
          bytes(in + coming[rank] + first, {in_now[rank]}).copy_(part(elements_ * 2 + in_at[rank], in_now[rank]));
    }
  }

  void exchange(const std::byte* out, std::byte* in, std::int64_t count, int peer, mpi::Wait& wait) override {
    const std::int64_t most = elements_ * 2;  // bytes: half of the staging memory each way
    for (std::int64_t first = 0; first < count; first += most) {
      const std::int64_t some = std::min(most, count - first);
      const at::Tensor going = memory(at::kByte, 0, {some}), coming = memory(at::kByte, most, {some});
      if (out != nullptr) going.copy_(bytes(out + first, {some}));
      host_->exchange(out != nullptr ? static_cast<const std::byte*>(going.const_data_ptr()) : nullptr,
                      in != nullptr ? static_cast<std::byte*>(coming.mutable_data_ptr()) : nullptr, some, peer, wait);
      if (in != nullptr) bytes(in + first, {some}).copy_(coming);
    }
  }

  void broadcast(std::span<std::byte> bytes, int root, mpi::Wait& wait) override {
    host_->broadcast(bytes, root, wait);
  }
  void barrier(mpi::Wait& wait) override { host_->barrier(wait); }
  void gather_values(const std::byte* mine, std::byte* all, Parts bytes, mpi::Wait& wait) override {
    host_->gather_values(mine, all, bytes, wait);
  }

 private:
  /// Elements of one rank's part in a piece: the own part precedes the whole piece.
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

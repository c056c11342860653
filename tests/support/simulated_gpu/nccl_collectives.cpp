// SPDX-License-Identifier: Apache-2.0
//
// Simulated NCCL: collectives, and groups of messages.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "nccl.h"
#include "support/simulated_gpu/engine.hpp"
#include "support/simulated_gpu/nccl_communicator.hpp"
#include "trireme/base/error.hpp"

using trireme::invariant;
using trireme::test::gpu::is_there;
using trireme::test::gpu::nccl::Inside;

namespace {

std::size_t size_of(ncclDataType_t type) { return type == ncclInt8 ? 1 : type == ncclBfloat16 ? 2 : 4; }

struct Message {
  ncclComm_t over;
  const std::byte* from;
  std::byte* to;
  std::size_t bytes;
  int peer;
};
std::atomic<int> inside_windows = 0, outside_windows = 0;

/// Whether a gather, reduction or exchange of `to_bytes` from `from_bytes` could be done in windows.
void note_windows(const ncclComm& over, const void* from, std::size_t from_bytes, const void* to,
                  std::size_t to_bytes) {
  ++(over.in_a_window(from, from_bytes) && over.in_a_window(to, to_bytes) ? inside_windows : outside_windows);
}

thread_local std::vector<Message> group;
thread_local bool grouping = false;
thread_local ncclResult_t group_error = ncclSuccess;
std::atomic<ncclResult_t> next_send = ncclSuccess;

void on_the_gpu(const void* from, const void* to) {
  invariant(is_there(from) && is_there(to), "NCCL moves tensors on GPUs only");
}

/// to[i] = the sum over ranks, from 0 on, of their values from `offset` on.
void sum_of_slots(const ncclComm& over, std::size_t offset, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < over.size; ++r) sum += reinterpret_cast<const float*>(over.slot(r))[offset + i];
    to[i] = sum;
  }
}

}  // namespace

bool trireme::test::gpu::nccl::group_is_open() { return grouping; }
void ncclFailNextSend(ncclResult_t result) { next_send = result; }

NcclWindowUse ncclWindowUse() {
  return {inside_windows, outside_windows, trireme::test::gpu::nccl::left_windows,
          trireme::test::gpu::nccl::registered_windows};
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t over,
                           cudaStream_t) {
  on_the_gpu(from, to);
  const Inside inside(over);
  const std::size_t bytes = count * size_of(type);
  note_windows(*over, from, bytes, to, bytes * static_cast<std::size_t>(over->size));
  return over->launch(
      [=] {
        return over->in_pieces(bytes, 1, [&](std::size_t first, std::size_t some) {
          return over->exchange(
              [&](std::byte* mine) { std::memcpy(mine, static_cast<const std::byte*>(from) + first, some); },
              [&] {
                for (int r = 0; r < over->size; ++r)
                  std::memcpy(static_cast<std::byte*>(to) + static_cast<std::size_t>(r) * bytes + first, over->slot(r),
                              some);
              });
        });
      },
      "ncclAllGather of " + std::to_string(bytes) + " bytes");
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t over, cudaStream_t) {
  on_the_gpu(from, to);
  invariant(type == ncclFloat32, "simulated NCCL sums fp32");
  const Inside inside(over);
  const auto size = static_cast<std::size_t>(over->size);
  note_windows(*over, from, 4 * size * count, to, 4 * count);
  return over->launch(
      [=] {
        return over->in_pieces(count, 4 * size, [&](std::size_t first, std::size_t some) {
          return over->exchange(
              [&](std::byte* mine) {
                for (std::size_t r = 0; r < size; ++r)
                  std::memcpy(mine + 4 * r * some, static_cast<const float*>(from) + r * count + first, 4 * some);
              },
              [&] {
                sum_of_slots(*over, static_cast<std::size_t>(over->rank) * some, some, static_cast<float*>(to) + first);
              });
        });
      },
      "ncclReduceScatter of " + std::to_string(count) + " elements");
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t over, cudaStream_t) {
  on_the_gpu(from, to);
  invariant(type == ncclFloat32, "simulated NCCL sums fp32");
  const Inside inside(over);
  return over->launch(
      [=] {
        return over->in_pieces(count, 4, [&](std::size_t first, std::size_t some) {
          return over->exchange(
              [&](std::byte* mine) { std::memcpy(mine, static_cast<const float*>(from) + first, 4 * some); },
              [&] { sum_of_slots(*over, 0, some, static_cast<float*>(to) + first); });
        });
      },
      "ncclAllReduce of " + std::to_string(count) + " elements");
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t over, cudaStream_t) {
  on_the_gpu(from, to);
  const Inside inside(over);
  return over->launch(
      [=] {
        return over->in_pieces(count * size_of(type), 1, [&](std::size_t first, std::size_t some) {
          return over->exchange(
              [&](std::byte* mine) { std::memcpy(mine, static_cast<const std::byte*>(from) + first, some); },
              [&] { std::memcpy(static_cast<std::byte*>(to) + first, over->slot(root), some); });
        });
      },
      "ncclBroadcast of " + std::to_string(count) + " elements");
}

ncclResult_t ncclGroupStart() {
  grouping = true;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t over,
                      cudaStream_t) {
  invariant(is_there(from), "messages are sent from GPUs");
  if (const ncclResult_t failure = next_send.exchange(ncclSuccess); failure != ncclSuccess)
    return group_error = failure;
  group.push_back({over, static_cast<const std::byte*>(from), nullptr, count * size_of(type), peer});
  return grouping ? ncclSuccess : ncclGroupEnd();
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t over, cudaStream_t) {
  invariant(is_there(to), "messages are received on GPUs");
  group.push_back({over, nullptr, static_cast<std::byte*>(to), count * size_of(type), peer});
  return grouping ? ncclSuccess : ncclGroupEnd();
}

ncclResult_t ncclAlltoAll(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t over,
                          cudaStream_t on) {
  const std::size_t bytes = count * size_of(type), whole = bytes * static_cast<std::size_t>(over->size);
  note_windows(*over, from, whole, to, whole);
  (void)ncclGroupStart();
  for (int r = 0; r < over->size; ++r) {
    const std::size_t offset = static_cast<std::size_t>(r) * bytes;
    (void)ncclSend(static_cast<const std::byte*>(from) + offset, count, type, r, over, on);
    (void)ncclRecv(static_cast<std::byte*>(to) + offset, count, type, r, over, on);
  }
  return ncclGroupEnd();
}

ncclResult_t ncclGroupEnd() {
  grouping = false;
  const std::vector<Message> messages = std::exchange(group, {});
  if (const ncclResult_t failure = std::exchange(group_error, ncclSuccess); failure != ncclSuccess) return failure;
  if (messages.empty()) return ncclSuccess;
  const ncclComm_t over = messages.front().over;
  std::size_t longest = 0;
  for (const Message& m : messages) {
    invariant(m.over == over, "messages of a group are of one communicator");
    longest = std::max(longest, m.bytes);
  }
  const Inside inside(over);
  return over->launch(
      [=] {
        // Every rank takes as many pieces as the longest message of all.
        std::size_t bytes = 0;
        const ncclResult_t agreed =
            over->exchange([&](std::byte* mine) { std::memcpy(mine, &longest, sizeof longest); },
                           [&] {
                             for (int r = 0; r < over->size; ++r) {
                               std::size_t of_rank = 0;
                               std::memcpy(&of_rank, over->slot(r), sizeof of_rank);
                               bytes = std::max(bytes, of_rank);
                             }
                           });
        if (agreed != ncclSuccess) return agreed;
        return over->in_pieces(bytes, static_cast<std::size_t>(over->size), [&](std::size_t first, std::size_t some) {
          const auto left = [&](const Message& m) { return m.bytes > first ? std::min(some, m.bytes - first) : 0; };
          return over->exchange(
              [&](std::byte* mine) {
                for (const Message& m : messages)
                  if (m.from != nullptr && left(m) > 0)
                    std::memcpy(mine + static_cast<std::size_t>(m.peer) * some, m.from + first, left(m));
              },
              [&] {
                for (const Message& m : messages)
                  if (m.to != nullptr && left(m) > 0)
                    std::memcpy(m.to + first, over->slot(m.peer) + static_cast<std::size_t>(over->rank) * some,
                                left(m));
              });
        });
      },
      "messages, the longest of " + std::to_string(longest) + " bytes");
}

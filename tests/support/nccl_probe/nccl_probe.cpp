// SPDX-License-Identifier: Apache-2.0
//
// Behaviour of the NCCL library between the ranks of this job, without code of Trireme: faults of NCCL or the machine
// show here, those of Trireme in its own tests.
//
//   mpirun -n N one_gpu_rank.sh nccl_probe GROUP...     basic order lazy free cost many windows graph abort kill stop
//   mpirun -n N nccl_probe --oracle-only                the values and arguments of `basic` over MPI, without a GPU
//   nccl_probe --load                                   the library loads and makes an id, without a GPU
//
// Rank 0 prints a line a check, `PASS|FAIL name value seconds`; survivors of `kill` print theirs. A check that hangs
// ends the program with such a line: run a group at a time. Repeats follow from the time of one collective, so that a
// group takes a bounded time. PROBE_SMALL=1: two sizes of messages. Exit code 1 if a check failed.
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels.hpp"

namespace {

using probe::launch_for_the_first_time;
using probe::spin;

int rank = 0, ranks = 1;
bool on_host = false;  // --oracle-only
bool failed = false;
std::string current = "start";
unsigned limit_seconds = 60;  // of a check
double hop = 0;               // seconds of a small all-gather

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void line(bool passed, const std::string& name, const std::string& value, double seconds) {
  std::printf("%s %s %s %.3f\n", passed ? "PASS" : "FAIL", name.c_str(), value.empty() ? "-" : value.c_str(), seconds);
  std::fflush(stdout);
}

void on_alarm(int) {
  char text[256];
  const int length =
      std::snprintf(text, sizeof text, "FAIL %s hangs_on_rank_%d %u\n", current.c_str(), rank, limit_seconds);
  (void)!write(STDOUT_FILENO, text, static_cast<std::size_t>(length));
  _exit(3);
}

[[noreturn]] void give_up(const char* call, const char* why) {
  std::printf("FAIL %s %s:_%s_on_rank_%d 0\n", current.c_str(), call, why, rank);
  std::fflush(stdout);
  _exit(1);
}
#define CUDA(call)                                                                             \
  do {                                                                                         \
    if (const cudaError_t e = (call); e != cudaSuccess) give_up(#call, cudaGetErrorString(e)); \
  } while (false)
#define NCCL(call)                                                                                                     \
  do {                                                                                                                 \
    if (const ncclResult_t e = (call); e != ncclSuccess && e != ncclInProgress) give_up(#call, ncclGetErrorString(e)); \
  } while (false)

ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress)
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
  return state;
}

/// Runs a check under the alarm: `work` returns what is wrong, "" for nothing, and may set its value.
void check(const std::string& name, const std::function<std::string(std::string& value)>& work) {
  current = name;
  alarm(limit_seconds);
  std::string value;
  const double began = now();
  const std::string wrong = work(value);
  double seconds = now() - began;
  int right = wrong.empty() ? 1 : 0;
  if (right == 0) std::printf("rank %d: %s: %s\n", rank, name.c_str(), wrong.c_str());
  MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  alarm(0);
  if (rank == 0) line(right == 1, name, value, seconds);
  failed = failed || right == 0;
}
std::string unless(bool right, const std::string& wrong) { return right ? "" : wrong; }
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

/// Device memory, or the host's in --oracle-only.
struct Buffer {
  explicit Buffer(std::size_t size) : bytes(size) {
    if (on_host)
      data = static_cast<char*>(std::calloc(size + 1, 1));
    else
      CUDA(cudaMalloc(&data, size + 1));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (on_host)
      std::free(data);
    else
      (void)cudaFree(data);
  }
  void set(const std::vector<char>& values, std::size_t offset = 0) const {
    if (on_host)
      std::memcpy(data + offset, values.data(), values.size());
    else
      CUDA(cudaMemcpy(data + offset, values.data(), values.size(), cudaMemcpyHostToDevice));
  }
  [[nodiscard]] std::vector<char> get(std::size_t offset, std::size_t count) const {
    std::vector<char> values(count);
    if (on_host)
      std::memcpy(values.data(), data + offset, count);
    else
      CUDA(cudaMemcpy(values.data(), data + offset, count, cudaMemcpyDeviceToHost));
    return values;
  }
  char* data = nullptr;
  std::size_t bytes;
};

// Closed forms: byte i that rank r sends to rank d, and element i of its terms, whole numbers so that any order sums
// alike.
char byte_of(int r, int d, std::size_t i) { return static_cast<char>((r * 31 + d * 17 + i * 7 + i / 251) % 127); }
float term_of(int r, std::size_t i) { return static_cast<float>((r + 1) * static_cast<int>((i * 13 + 5) % 97)); }
float sum_of(std::size_t i) {
  return static_cast<float>(ranks * (ranks + 1) / 2 * static_cast<int>((i * 13 + 5) % 97));
}
std::vector<char> bytes_of(int r, int d, std::size_t count) {
  std::vector<char> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = byte_of(r, d, i);
  return values;
}
std::vector<char> floats(std::size_t first, std::size_t count, const std::function<float(std::size_t)>& at) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = at(first + i);
  std::vector<char> raw(4 * count);
  std::memcpy(raw.data(), values.data(), raw.size());
  return raw;
}

ncclConfig_t config(int blocking) {
  ncclConfig_t made = NCCL_CONFIG_INITIALIZER;
  made.blocking = blocking;
  return made;
}

/// A communicator with a separate stream.
struct Comm {
  explicit Comm(int roots = 1, int blocking = 0) {
    if (on_host) return;
    std::vector<ncclUniqueId> ids(static_cast<std::size_t>(roots));
    const int each = (ranks + roots - 1) / roots;
    for (int root = 0; root < roots; ++root) {
      auto& id = ids[static_cast<std::size_t>(root)];
      const int maker = std::min(root * each, ranks - 1);
      if (rank == maker) NCCL(ncclGetUniqueId(&id));
      MPI_Bcast(&id, sizeof id, MPI_BYTE, maker, MPI_COMM_WORLD);
    }
    ncclConfig_t how = config(blocking);
    NCCL(ncclCommInitRankScalable(&handle, ranks, rank, roots, ids.data(), &how));
    NCCL(settle(handle));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  explicit Comm(Comm& parent) {
    if (on_host) return;
    ncclConfig_t how = config(0);
    how.splitShare = 0;
    NCCL(ncclCommSplit(parent.handle, 0, rank, &handle, &how));
    NCCL(settle(parent.handle));
    NCCL(settle(handle));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm() {
    if (handle == nullptr) return;
    (void)ncclCommFinalize(handle);
    if (settle(handle) == ncclSuccess)
      (void)ncclCommDestroy(handle);
    else
      (void)ncclCommAbort(handle);
    (void)cudaStreamDestroy(stream);
  }
  /// Launches and returns when that is launched.
  void launch(const std::function<ncclResult_t()>& call) const {
    NCCL(call());
    NCCL(settle(handle));
  }
  void wait() const {
    if (!on_host) CUDA(cudaStreamSynchronize(stream));
  }
  void gather(const char* from, char* to, std::size_t bytes) const {
    if (on_host)
      MPI_Allgather(from == to + static_cast<std::size_t>(rank) * bytes ? MPI_IN_PLACE : from, static_cast<int>(bytes),
                    MPI_BYTE, to, static_cast<int>(bytes), MPI_BYTE, MPI_COMM_WORLD);
    else
      launch([&] { return ncclAllGather(from, to, bytes, ncclInt8, handle, stream); });
  }
  void reduce_scatter(const float* from, float* to, std::size_t count) const {
    if (on_host) {
      std::vector<float> sum(count * static_cast<std::size_t>(ranks));
      MPI_Allreduce(from, sum.data(), static_cast<int>(sum.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      std::copy_n(sum.begin() + static_cast<std::ptrdiff_t>(count * static_cast<std::size_t>(rank)), count, to);
    } else {
      launch([&] { return ncclReduceScatter(from, to, count, ncclFloat32, ncclSum, handle, stream); });
    }
  }
  void all_reduce(const float* from, float* to, std::size_t count) const {
    if (on_host)
      MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
      launch([&] { return ncclAllReduce(from, to, count, ncclFloat32, ncclSum, handle, stream); });
  }
  void broadcast(char* data, std::size_t bytes, int root) const {
    if (on_host)
      MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, root, MPI_COMM_WORLD);
    else
      launch([&] { return ncclBroadcast(data, data, bytes, ncclInt8, root, handle, stream); });
  }
  /// Messages of counts[a][b] bytes from rank a to rank b, side by side; none if that is 0.
  void exchange(const char* out, char* in, const std::function<std::size_t(int, int)>& counts) const {
    std::size_t going = 0, coming = 0;
    if (on_host) {
      std::vector<int> sent, received, out_at, in_at;
      for (int other = 0; other < ranks; ++other) {
        out_at.push_back(static_cast<int>(going));
        in_at.push_back(static_cast<int>(coming));
        sent.push_back(static_cast<int>(counts(rank, other)));
        received.push_back(static_cast<int>(counts(other, rank)));
        going += counts(rank, other);
        coming += counts(other, rank);
      }
      MPI_Alltoallv(out, sent.data(), out_at.data(), MPI_BYTE, in, received.data(), in_at.data(), MPI_BYTE,
                    MPI_COMM_WORLD);
      return;
    }
    launch([&] {
      NCCL(ncclGroupStart());
      for (int other = 0; other < ranks; ++other) {
        if (counts(rank, other) > 0) NCCL(ncclSend(out + going, counts(rank, other), ncclInt8, other, handle, stream));
        if (counts(other, rank) > 0) NCCL(ncclRecv(in + coming, counts(other, rank), ncclInt8, other, handle, stream));
        going += counts(rank, other);
        coming += counts(other, rank);
      }
      return ncclGroupEnd();
    });
  }
  ncclComm_t handle = nullptr;
  cudaStream_t stream = nullptr;
};

std::string gather_is_right(const Comm& comm, std::size_t bytes, bool in_place, std::size_t offset) {
  const auto all = static_cast<std::size_t>(ranks) * bytes;
  const Buffer from(bytes + offset), to(all + offset);
  char* const mine = in_place ? to.data + offset + static_cast<std::size_t>(rank) * bytes : from.data + offset;
  (in_place ? to : from)
      .set(bytes_of(rank, 0, bytes), in_place ? offset + static_cast<std::size_t>(rank) * bytes : offset);
  comm.gather(mine, to.data + offset, bytes);
  comm.wait();
  for (int r = 0; r < ranks; ++r)
    if (to.get(offset + static_cast<std::size_t>(r) * bytes, bytes) != bytes_of(r, 0, bytes))
      return "part of rank " + std::to_string(r);
  return "";
}

std::string sums_are_right(const Comm& comm, std::size_t count, bool in_place, std::size_t offset) {
  const auto all = static_cast<std::size_t>(ranks) * count, mine = static_cast<std::size_t>(rank) * count;
  const Buffer from(4 * all + offset), to(4 * all + offset);
  const auto terms = floats(0, all, [](std::size_t i) { return term_of(rank, i); });
  auto* const in = reinterpret_cast<float*>(from.data + offset);
  auto* const out = reinterpret_cast<float*>((in_place ? from : to).data + offset);
  const Buffer& result = in_place ? from : to;
  from.set(terms, offset);
  comm.reduce_scatter(in, in_place ? in + mine : out, count);
  comm.wait();
  if (result.get(offset + (in_place ? 4 * mine : 0), 4 * count) != floats(mine, count, sum_of)) return "reduce_scatter";
  from.set(terms, offset);
  comm.all_reduce(in, out, all);
  comm.wait();
  return unless(result.get(offset, 4 * all) == floats(0, all, sum_of), "all_reduce");
}

std::string messages_are_right(const Comm& comm, const std::function<std::size_t(int, int)>& counts) {
  std::vector<char> out, in;
  for (int other = 0; other < ranks; ++other) {
    const auto going = bytes_of(rank, other, counts(rank, other)), coming = bytes_of(other, rank, counts(other, rank));
    out.insert(out.end(), going.begin(), going.end());
    in.insert(in.end(), coming.begin(), coming.end());
  }
  const Buffer from(out.size()), to(in.size());
  from.set(out);
  comm.exchange(from.data, to.data, counts);
  comm.wait();
  return unless(to.get(0, in.size()) == in, "messages");
}

void basic() {
  const bool small = std::getenv("PROBE_SMALL") != nullptr;
  std::unique_ptr<Comm> first;
  check("basic/first_communicator", [&](std::string&) {
    first = std::make_unique<Comm>();
    return std::string();
  });
  check("basic/two_splits", [&](std::string&) {
    Comm child(*first), other(*first);
    return gather_is_right(child, 4096, false, 0) + gather_is_right(other, 4096, false, 0);
  });
  for (const int roots : ranks == 2 ? std::vector<int>{2} : std::vector<int>{2, ranks})
    check("basic/ids_of_" + std::to_string(roots) + "_roots",
          [&](std::string&) { return gather_is_right(Comm(roots), 4096, false, 0); });
  std::vector<std::size_t> sizes{0, 1, 3, 4096, (1 << 20) + 1, std::size_t{64} << 20};
  if (small) sizes = {4096, (1 << 20) + 1};
  for (const std::size_t size : sizes)
    check("basic/bytes_" + std::to_string(size), [&](std::string&) {
      const std::size_t count = size / 4;
      std::string wrong;
      for (const bool in_place : {false, true})
        wrong +=
            gather_is_right(*first, size, in_place, 0) + (count > 0 ? sums_are_right(*first, count, in_place, 0) : "");
      const Buffer data(size);
      if (rank == ranks - 1) data.set(bytes_of(ranks - 1, 0, size));
      first->broadcast(data.data, size, ranks - 1);
      first->wait();
      if (data.get(0, size) != bytes_of(ranks - 1, 0, size)) wrong += " broadcast";
      return wrong + messages_are_right(*first, [&](int, int) { return size / static_cast<std::size_t>(ranks); });
    });
  check("basic/offsets", [&](std::string&) {
    std::string wrong;
    for (const std::size_t offset : {1, 2, 4, 16}) {
      wrong += gather_is_right(*first, 5001, false, offset);
      if (offset % 4 == 0) wrong += sums_are_right(*first, 1251, false, offset);
    }
    return wrong;
  });
  check("basic/uneven_and_empty_messages", [&](std::string&) {
    return messages_are_right(*first,
                              [](int a, int b) {
                                return a == 0 && b == ranks - 1 ? std::size_t{0}
                                                                : static_cast<std::size_t>(1000 * a + 77 * b + 1);
                              }) +
           messages_are_right(*first,
                              [](int a, int b) { return a == 0 && b == 0 ? std::size_t{999} : std::size_t{0}; });
  });
  check("basic/one_sum_twice_has_equal_bits", [&](std::string&) {
    const std::size_t count = 100'003;
    const Buffer from(4 * count), a(4 * count), b(4 * count);
    from.set(floats(
        0, count, [](std::size_t i) { return 1.0F / static_cast<float>(i * 7 + static_cast<std::size_t>(rank) + 3); }));
    for (const Buffer* to : {&a, &b})
      first->all_reduce(reinterpret_cast<float*>(from.data), reinterpret_cast<float*>(to->data), count);
    first->wait();
    return unless(a.get(0, 4 * count) == b.get(0, 4 * count), "other bits");
  });
  if (on_host) return;
  for (const std::size_t size : {std::size_t{4096}, small ? std::size_t{1} << 20 : std::size_t{64} << 20})
    check("basic/seconds_p50_p99_of_" + std::to_string(size), [&](std::string& value) {
      const Buffer from(size / static_cast<std::size_t>(ranks)), to(size);
      std::vector<double> times;
      const int repeats = size > 4096 ? 5 : 20;
      for (int i = 0; i < repeats; ++i) {
        const double began = now();
        first->gather(from.data, to.data, size / static_cast<std::size_t>(ranks));
        first->wait();
        times.push_back(now() - began);
      }
      std::sort(times.begin(), times.end());
      value = number(times[times.size() / 2]) + "," + number(times.back());
      return std::string();
    });
}

/// Measures a small all-gather on all ranks: what repeats are derived from.
void measure_hop() {
  const Comm comm;
  const Buffer from(64), to(64 * static_cast<std::size_t>(ranks));
  std::vector<double> times;
  for (int i = 0; i < 6; ++i) {
    const double began = now();
    comm.gather(from.data, to.data, 64);
    comm.wait();
    times.push_back(now() - began);
  }
  std::sort(times.begin(), times.end());
  hop = times[times.size() / 2];
  MPI_Allreduce(MPI_IN_PLACE, &hop, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}
int repeats(double seconds, int most) { return std::clamp(static_cast<int>(seconds / std::max(hop, 1e-6)), 4, most); }

/// All-gathers over separate communicators, with `before(k)` ahead of the launch on stream k.
std::string in_one_order(std::vector<std::unique_ptr<Comm>>& comms, int launches,
                         const std::function<void(std::size_t)>& before) {
  std::vector<std::unique_ptr<Buffer>> from, to;
  for (std::size_t k = 0; k < comms.size(); ++k) {
    from.push_back(std::make_unique<Buffer>(4096));
    to.push_back(std::make_unique<Buffer>(4096 * static_cast<std::size_t>(ranks)));
    from.back()->set(bytes_of(rank, static_cast<int>(k), 4096));
  }
  for (int i = 0; i < launches; ++i)
    for (std::size_t k = 0; k < comms.size(); ++k) {
      before(k);
      comms[k]->gather(from[k]->data, to[k]->data, 4096);
    }
  for (auto& comm : comms) comm->wait();
  for (std::size_t k = 0; k < comms.size(); ++k)
    for (int r = 0; r < ranks; ++r)
      if (to[k]->get(static_cast<std::size_t>(r) * 4096, 4096) != bytes_of(r, static_cast<int>(k), 4096))
        return "communicator " + std::to_string(k);
  return "";
}

void order() {
  for (const int count : {2, 6}) {
    const std::string of = std::to_string(count) + "_communicators";
    std::vector<std::unique_ptr<Comm>> comms;
    for (int i = 0; i < count; ++i) comms.push_back(std::make_unique<Comm>());
    const int launches = repeats(4.0 / count, 200);
    check("order/" + of, [&](std::string& value) {
      value = std::to_string(launches) + "_launches_each";
      return in_one_order(comms, launches, [](std::size_t) {});
    });
    check("order/" + of + "_ready_in_reverse_on_odd_ranks", [&](std::string&) {
      // Stream k waits for k short kernels, or, on odd ranks, for as many as the other end.
      return in_one_order(comms, std::max(4, launches / 4), [&](std::size_t k) {
        const std::size_t late = rank % 2 == 0 ? k : comms.size() - 1 - k;
        if (late > 0) spin(1, 1, static_cast<long long>(late) * 200'000, comms[k]->stream);
      });
    });
    check("order/" + of + "_beside_a_kernel_on_all_multiprocessors", [&](std::string&) {
      cudaStream_t busy = nullptr;
      CUDA(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
      spin(2048, 1024, 10'000'000, busy);
      const std::string wrong = in_one_order(comms, 4, [](std::size_t) {});
      CUDA(cudaStreamSynchronize(busy));
      CUDA(cudaStreamDestroy(busy));
      return wrong;
    });
    check("order/" + of + "_from_two_threads_in_one_order", [&](std::string&) {
      // Thread t launches the communicators k = t, t + 2, ...: the turn goes round.
      std::atomic<std::size_t> turn = 0;
      const std::size_t all = comms.size() * static_cast<std::size_t>(std::max(4, launches / 4));
      const Buffer from(64), to(64 * static_cast<std::size_t>(ranks) * comms.size());
      const auto half = [&](std::size_t t) {
        CUDA(cudaSetDevice(0));
        for (std::size_t i = t; i < all; i += 2) {
          while (turn != i) std::this_thread::yield();
          const std::size_t k = i % comms.size();
          comms[k]->gather(from.data, to.data + k * 64 * static_cast<std::size_t>(ranks), 64);
          turn = i + 1;
        }
      };
      std::thread second([&] { half(1); });
      half(0);
      second.join();
      for (auto& comm : comms) comm->wait();
      return std::string();
    });
  }
  check("order/forty_streams", [&](std::string& value) {
    const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    value = std::string("queues_") + (queues != nullptr ? queues : "8");
    std::vector<std::unique_ptr<Comm>> two;
    for (int i = 0; i < 2; ++i) two.push_back(std::make_unique<Comm>());
    std::vector<cudaStream_t> streams(38);
    for (cudaStream_t& stream : streams) CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const std::string wrong = in_one_order(two, repeats(2, 50), [&](std::size_t) {
      for (cudaStream_t stream : streams) spin(1, 1, 1000, stream);
    });
    for (cudaStream_t stream : streams) CUDA(cudaStreamDestroy(stream));
    return wrong;
  });
}

/// One collective is pending, then `between`, then the other: in opposite order on odd ranks. It hangs where `between`
/// waits for the whole context.
std::string crossed(const std::function<void()>& between) {
  const Comm a, b;
  const Buffer from(4096), to(4096 * static_cast<std::size_t>(ranks)), from_b(4096),
      to_b(4096 * static_cast<std::size_t>(ranks));
  MPI_Barrier(MPI_COMM_WORLD);
  const auto one = [&] { a.gather(from.data, to.data, 4096); };
  const auto other = [&] { b.gather(from_b.data, to_b.data, 4096); };
  rank % 2 == 0 ? one() : other();
  between();
  rank % 2 == 0 ? other() : one();
  a.wait();
  b.wait();
  return "";
}

void lazy() {
  limit_seconds = 20;
  check("lazy/first_launch_of_a_kernel_while_a_collective_is_pending", [](std::string& value) {
    const char* const loading = std::getenv("CUDA_MODULE_LOADING");
    value = loading != nullptr ? loading : "default";
    return crossed([] {
      cudaStream_t stream = nullptr;
      CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      launch_for_the_first_time(rank % 2, stream);
      CUDA(cudaGetLastError());
    });
  });
}

void freeing() {  // known to wait for the device; Trireme frees nothing in a step
  limit_seconds = 20;
  check("free/of_page_locked_memory_while_a_collective_is_pending", [](std::string&) {
    void* pinned = nullptr;
    CUDA(cudaMallocHost(&pinned, 1 << 20));
    return crossed([&] { CUDA(cudaFreeHost(pinned)); });
  });
  check("free/of_device_memory_while_a_collective_is_pending", [](std::string&) {
    void* memory = nullptr;
    CUDA(cudaMalloc(&memory, 1 << 20));
    return crossed([&] { CUDA(cudaFree(memory)); });
  });
}

long in_proc(const char* file, const char* key) {
  std::ifstream status(file);
  for (std::string word; status >> word;)
    if (word == key) {
      long value = 0;
      status >> value;
      return value;
    }
  return 0;
}
long descriptors() {
  long count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}
std::string resources() {
  std::size_t left = 0, all = 0;
  CUDA(cudaMemGetInfo(&left, &all));
  return "threads_" + std::to_string(in_proc("/proc/self/status", "Threads:")) + ",descriptors_" +
         std::to_string(descriptors()) + ",locked_kb_" +
         std::to_string(in_proc("/proc/self/status", "VmLck:") + in_proc("/proc/self/status", "VmPin:")) +
         ",gpu_mib_used_" + std::to_string((all - left) >> 20);
}

void cost() {
  for (const int blocking : {0, 1})
    check("cost/us_of_a_launch_p50_p99_blocking_" + std::to_string(blocking), [&](std::string& value) {
      const Comm comm(1, blocking);
      const Buffer from(4096), to(4096 * static_cast<std::size_t>(ranks));
      std::vector<double> times;
      const int launches = repeats(6, 1024);
      for (int i = 0; i < launches; ++i) {
        const double began = now();
        comm.gather(from.data, to.data, 4096);
        times.push_back(now() - began);
        if (i % 64 == 63) comm.wait();
      }
      comm.wait();
      std::sort(times.begin(), times.end());
      value = number(times[times.size() / 2] * 1e6) + "," + number(times[times.size() * 99 / 100] * 1e6) + "," +
              resources();
      return std::string();
    });
}

void many() {
  constexpr int count = 32;
  limit_seconds = 120;
  for (const bool reversed : {false, true})
    check(std::string("many/32_communicators_destroyed_in_") + (reversed ? "opposite_order" : "one_order"),
          [&](std::string& value) {
            const std::string before = resources();
            std::vector<std::unique_ptr<Comm>> comms;
            double seconds = 0;
            for (int i = 0; i < count; ++i) {
              const double began = now();
              comms.push_back(std::make_unique<Comm>());
              seconds = std::max(seconds, now() - began);
              const Buffer from(64), to(64 * static_cast<std::size_t>(ranks));
              comms.back()->gather(from.data, to.data, 64);
              comms.back()->wait();
            }
            value = "longest_" + number(seconds) + "," + before + ",then_" + resources();
            if (!reversed || rank % 2 == 0)
              for (auto& comm : comms) comm.reset();
            else
              while (!comms.empty()) comms.pop_back();
            return std::string();
          });
}

void windows() {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  check("windows/gather_and_sum", [](std::string& value) {
    const Comm comm;
    const std::size_t part = 1 << 20;
    void *from = nullptr, *to = nullptr;
    NCCL(ncclMemAlloc(&from, part));
    NCCL(ncclMemAlloc(&to, part * static_cast<std::size_t>(ranks)));
    CUDA(cudaMemcpy(from, bytes_of(rank, 0, part).data(), part, cudaMemcpyHostToDevice));
    ncclWindow_t a = nullptr, b = nullptr;
    const double began = now();
    comm.launch([&] { return ncclCommWindowRegister(comm.handle, from, part, &a, NCCL_WIN_COLL_SYMMETRIC); });
    const double first = now() - began;
    comm.gather(static_cast<char*>(from), static_cast<char*>(to), part);
    comm.launch([&] {
      return ncclCommWindowRegister(comm.handle, to, part * static_cast<std::size_t>(ranks), &b,
                                    NCCL_WIN_COLL_SYMMETRIC);
    });
    comm.gather(static_cast<char*>(from), static_cast<char*>(to), part);
    comm.wait();
    std::vector<char> all(part * static_cast<std::size_t>(ranks));
    CUDA(cudaMemcpy(all.data(), to, all.size(), cudaMemcpyDeviceToHost));
    std::string wrong;
    for (int r = 0; r < ranks; ++r)
      wrong +=
          unless(std::equal(all.begin() + r * static_cast<std::ptrdiff_t>(part),
                            all.begin() + (r + 1) * static_cast<std::ptrdiff_t>(part), bytes_of(r, 0, part).begin()),
                 "part of rank " + std::to_string(r));
    NCCL(ncclCommWindowDeregister(comm.handle, a));
    NCCL(ncclCommWindowDeregister(comm.handle, b));
    NCCL(ncclMemFree(from));
    NCCL(ncclMemFree(to));
    value = "register_seconds_" + number(first);
    return wrong;
  });
#endif
}

void graph() {
  check("graph/captured_while_another_thread_launches", [](std::string& value) {
    const Comm comm;
    const Buffer from(4096), to(4096 * static_cast<std::size_t>(ranks));
    cudaStream_t stream = nullptr;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const int launches = repeats(6, 100);
    std::thread lane([&] {
      CUDA(cudaSetDevice(0));
      for (int i = 0; i < launches; ++i) comm.gather(from.data, to.data, 4096);
    });
    int invalid = 0;
    for (int i = 0; i < 100; ++i) {
      cudaGraph_t captured = nullptr;
      CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      spin(1, 1, 1000, stream);
      if (cudaStreamEndCapture(stream, &captured) != cudaSuccess) ++invalid;
      if (captured != nullptr) CUDA(cudaGraphDestroy(captured));
    }
    lane.join();
    comm.wait();
    CUDA(cudaStreamDestroy(stream));
    value = std::to_string(launches) + "_launches";
    return unless(invalid == 0, std::to_string(invalid) + " captures were invalid");
  });
}

void aborting() {
  for (const bool group : {false, true})
    check(std::string("abort/") + (group ? "inside_an_open_group" : "of_what_waits_for_others"),
          [&](std::string& value) {
            auto* const comm = new Comm;  // ends by abort
            const Buffer from(4096), to(4096 * static_cast<std::size_t>(ranks));
            if (rank == 0 && !group) comm->gather(from.data, to.data, 4096);
            if (group) {
              NCCL(ncclGroupStart());
              NCCL(ncclSend(from.data, 64, ncclInt8, (rank + 1) % ranks, comm->handle, comm->stream));
            }
            const double began = now();
            std::thread([&] {  // where the group is another thread's
              CUDA(cudaSetDevice(0));
              (void)ncclCommAbort(comm->handle);
            })
                .join();
            value = number(now() - began);
            spin(1, 1, 1000, nullptr);
            return unless(cudaDeviceSynchronize() == cudaSuccess, "the GPU is unusable");
          });
}

/// Gathers until a rank is lost; with a word about each of its fate.
void kill_group() {
  (void)signal(SIGTERM, SIG_IGN);  // of mpirun, which ends the job ten seconds later
  current = "kill/last_rank";
  alarm(30);
  const Comm& comm = *new Comm;
  const Buffer from(4096), to(4096 * static_cast<std::size_t>(ranks));
  for (int i = 0; i < 10; ++i) {
    comm.gather(from.data, to.data, 4096);
    comm.wait();
  }
  if (rank == ranks - 1) (void)raise(SIGKILL);
  const double began = now();
  ncclResult_t state = ncclSuccess;
  for (int launched = 0; state == ncclSuccess || state == ncclInProgress;) {
    if (launched++ == 0 && ncclAllGather(from.data, to.data, 4096, ncclInt8, comm.handle, comm.stream) > ncclInProgress)
      break;
    (void)ncclCommGetAsyncError(comm.handle, &state);
    if (now() - began > 8) break;  // a rank that is no neighbour of the dead one
    usleep(1000);
  }
  const double seen = now() - began;
  (void)ncclCommAbort(comm.handle);
  line(seen < 5 || ranks > 3, "kill/rank_" + std::to_string(rank),
       std::string(ncclGetErrorString(state)).substr(0, 14) + "_after_" + number(seen) + ",abort_" +
           number(now() - began - seen),
       now() - began);
  _exit(0);
}

void stop_group() {
  check("stop/last_rank_for_ten_seconds", [](std::string&) {
    const Comm comm;
    const pid_t parent = getpid();
    if (rank == ranks - 1 && fork() == 0) {
      sleep(1);
      (void)kill(parent, SIGSTOP);
      sleep(10);
      (void)kill(parent, SIGCONT);
      _exit(0);
    }
    std::string wrong;
    const double began = now();
    for (int go_on = 1; go_on != 0;) {
      if (wrong.empty()) wrong = sums_are_right(comm, 1024, false, 0);
      go_on = now() - began < 13 ? 1 : 0;  // of rank 0
      MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    return wrong;
  });
}

int load() {
  int version = 0;
  const bool has_version = ncclGetVersion(&version) == ncclSuccess;
  line(has_version && version >= 22300, "load/version", std::to_string(version), 0);
  ncclUniqueId id;
  const bool has_id = ncclGetUniqueId(&id) == ncclSuccess;
  line(has_id, "load/id", has_id ? "made" : ncclGetLastError(nullptr), 0);
  return has_version && has_id ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "--load") return load();
  (void)signal(SIGALRM, on_alarm);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  on_host = word == "--oracle-only";
  const std::vector<std::pair<std::string, std::function<void()>>> groups{
      {"basic", basic},    {"order", order},     {"lazy", lazy},       {"free", freeing},
      {"cost", cost},      {"many", many},       {"windows", windows}, {"graph", graph},
      {"abort", aborting}, {"kill", kill_group}, {"stop", stop_group}};
  if (on_host) {
    basic();
  } else {
    int gpus = 0;
    CUDA(cudaGetDeviceCount(&gpus));
    CUDA(cudaSetDevice(gpus > 1 ? rank % gpus : 0));
    current = "start/hop";
    alarm(limit_seconds);
    measure_hop();
    alarm(0);
    if (rank == 0) line(true, "start/hop", number(hop), hop);
    for (int i = 1; i < argc; ++i) {
      bool known = false;
      for (const auto& [name, group] : groups)
        if (name == argv[i]) {
          known = true;
          group();
        }
      if (!known) give_up("group", argv[i]);
    }
  }
  MPI_Finalize();
  return failed ? 1 : 0;
}

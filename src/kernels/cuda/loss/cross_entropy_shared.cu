// SPDX-License-Identifier: Apache-2.0
//
// Cross-entropy with its gradient, each row read from memory once: blocks stay for many rows, keep a row in shared
// memory and registers between the two passes over it, and fetch the next one into the places that they have written.
#include <algorithm>

#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/loss/softmax.cuh"

namespace trireme::kernels::cuda {
namespace {

/// Threads on a multiprocessor, in one block or several.
constexpr int threads_together = 1024;
/// Packs of a row for which a thread has a place, about: more threads share longer rows.
constexpr int packs_a_thread = 16;
/// Groups of copies that a thread waits for one by one.
constexpr int copy_groups = 4;

/// Keeps packs of a thread in registers, after those of `staged` in shared memory; the rest is read from memory twice.
/// Each thread copies, reads and writes its own packs only: no barrier but the sum's.
template <int threads>
inline constexpr int kept_packs = threads == threads_together ? 2 : 1;

template <class T, int threads>
__global__ void __launch_bounds__(threads, threads_together / threads)
    cross_entropy_shared_kernel(Matrix<T> logits, const std::int32_t* targets, float scale, float z_loss, Losses losses,
                                int staged) {
  constexpr int n = whole_pack<T>, kept = kept_packs<threads>;
  using Packed = Pack<T, n>;
  __shared__ Two scratch[2][32];  // of even rows and odd ones
  auto* const shared = static_cast<Packed*>(dynamic_shared()) + threadIdx.x;
  const int width = static_cast<int>(logits.width), first = static_cast<int>(threadIdx.x) * n;
  constexpr int step = threads * n;
  const int of_group = (staged + copy_groups - 1) / copy_groups;
  const auto column_of = [&](int p) { return first + p * step; };
  /// Calls visit(pack, column) for the staged packs of a group.
  const auto each_of_group = [&](int g, const auto& visit) {
    const int end = (g + 1) * of_group < staged ? (g + 1) * of_group : staged;
    for (int p = g * of_group; p < end; ++p)
      if (column_of(p) < width) visit(shared + p * threads, column_of(p));
  };
  Packed in_registers[kept];
  const auto fetch_kept = [&](const T* row) {
    for (int r = 0; r < kept; ++r)
      if (column_of(staged + r) < width) in_registers[r] = load<n>(row + column_of(staged + r));
  };
  std::int64_t n_row = blockIdx.x;  // no block without a row is started
  const T* const begin = logits.data + n_row * logits.stride;
  for (int g = 0; g < copy_groups; ++g) {
    each_of_group(g, [&](Packed* to, int column) { copy_16_bytes(to, begin + column); });
    end_copies();
  }
  fetch_kept(begin);
  for (int odd = 0; n_row < logits.rows; odd ^= 1) {
    T* const row = logits.data + n_row * logits.stride;
    const std::int32_t target = targets[n_row];
    const bool right = target >= -1 && target < width;
    const float logit = right && target >= 0 ? static_cast<float>(row[target]) : 0.0F;
    Two s{-FLT_MAX, 0};
    const auto join = [&](const Packed& pack) {
      const Packed x[1] = {pack};
      s = joined(s, x);
    };
    const auto join_group = [&](int g) { each_of_group(g, [&](const Packed* pack, int) { join(*pack); }); };
    wait_for_copies<3>();
    join_group(0);
    wait_for_copies<2>();
    join_group(1);
    wait_for_copies<1>();
    join_group(2);
    wait_for_copies<0>();
    join_group(3);
    for (int r = 0; r < kept; ++r)
      if (column_of(staged + r) < width) join(in_registers[r]);
    for (int i = column_of(staged + kept); i < width; i += step) join(load<n>(row + i));
    s = block_reduce_once(s, Join{}, scratch[odd]);
    expect(right, "cross_entropy: a target is outside the vocabulary");
    const bool counts = target >= 0;
    if (threadIdx.x == 0) counts ? losses.put(n_row, s.b, logit, s.a, z_loss) : losses.put_none(n_row);
    const Turn turn(s, logit, scale, z_loss, target);
    const auto put = [&](const Packed& x, int column) { store<n>(row + column, counts ? turn(x) : Packed{}); };
    for (int i = column_of(staged + kept); i < width; i += step) put(load<n>(row + i), i);
    for (int r = 0; r < kept; ++r)
      if (column_of(staged + r) < width) put(in_registers[r], column_of(staged + r));
    n_row += gridDim.x;
    const bool more = n_row < logits.rows;
    if (more) fetch_kept(row + gridDim.x * logits.stride);
    for (int g = 0; g < copy_groups; ++g) {
      each_of_group(g, [&](Packed* pack, int column) {
        put(*pack, column);
        if (more) copy_16_bytes(pack, row + gridDim.x * logits.stride + column);
      });
      end_copies();
    }
    if (counts) turn.put_target<n>(row, width);
  }
}

template <class T, int threads>
void run(Matrix<T> logits, const std::int32_t* targets, float scale, float z_loss, const Losses& losses) {
  constexpr int blocks = threads_together / threads, n = whole_pack<T>, of_pack = threads * 16;
  constexpr int declared = 2 * 32 * static_cast<int>(sizeof(Two));
  const Chip& here = chip();
  const int room = std::min(here.shared_bytes / blocks - here.reserved_bytes, here.shared_bytes_a_block) - declared;
  const int staged = std::min(room / of_pack, static_cast<int>(ceil_div(ceil_div(logits.width, n), threads)));
  const std::int64_t at_once = std::int64_t{here.multiprocessors} * blocks;
  launch("cross_entropy", cross_entropy_shared_kernel<T, threads>,
         {.blocks = std::min(logits.rows, at_once), .threads = threads, .shared_bytes = staged * of_pack}, logits,
         targets, scale, z_loss, losses, staged);
}

}  // namespace

template <class T>
bool cross_entropy_in_shared(Matrix<T> logits, const std::int32_t* targets, float scale, float z_loss, double* losses) {
  constexpr int n = whole_pack<T>;
  if (!fits<n>(logits) || logits.width > 1 << 30) return false;
  const Losses of_rows{losses, logits.rows};
  const std::int64_t packs = ceil_div(logits.width, n);
  if (packs <= 256 * packs_a_thread)
    run<T, 256>(logits, targets, scale, z_loss, of_rows);
  else if (packs <= 512 * packs_a_thread)
    run<T, 512>(logits, targets, scale, z_loss, of_rows);
  else
    run<T, 1024>(logits, targets, scale, z_loss, of_rows);
  return true;
}

template bool cross_entropy_in_shared(Matrix<float>, const std::int32_t*, float, float, double*);
template bool cross_entropy_in_shared(Matrix<c10::BFloat16>, const std::int32_t*, float, float, double*);

}  // namespace trireme::kernels::cuda

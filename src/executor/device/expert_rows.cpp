// SPDX-License-Identifier: Apache-2.0
// Rows of tokens between the GPUs of expert ranks. A rank's rows are sorted by expert, so that those for a rank are
// contiguous and are sent without a copy; received rows are in rank order and are sorted by expert.
#include "executor/expert_rows.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "trireme/device/buffer.hpp"

namespace trireme::executor {
namespace {

/// Rows of every rank for every one of this rank's experts, as segments: their begins among rows sorted by rank and
/// expert, and among rows sorted by expert and rank.
struct Segments {
  std::vector<std::int64_t> by_rank, by_expert;
};

/// `order_of_ranks`: the segments of a rank follow each other; else those of an expert.
Segments segments_of(const RowCounts& counts, int ranks, bool order_of_ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  const std::size_t held = counts.to.size() / count;
  std::vector<std::int64_t> by_rank(counts.from.size()), by_expert(counts.from.size());
  std::int64_t next = 0;
  for (std::size_t i = 0; i < by_rank.size(); next += counts.from[i], ++i) by_rank[i] = next;
  next = 0;
  for (std::size_t expert = 0; expert < held; ++expert)
    for (std::size_t rank = 0; rank < count; next += counts.from[rank * held + expert], ++rank)
      by_expert[rank * held + expert] = next;
  if (order_of_ranks) return {std::move(by_rank), std::move(by_expert)};
  Segments out;
  for (std::size_t expert = 0; expert < held; ++expert)
    for (std::size_t rank = 0; rank < count; ++rank) {
      out.by_rank.push_back(by_rank[rank * held + expert]);
      out.by_expert.push_back(by_expert[rank * held + expert]);
    }
  return out;
}

std::vector<std::int64_t> times(std::vector<std::int64_t> counts, std::int64_t width) {
  for (std::int64_t& count : counts) count *= width;
  return counts;
}

DType type_of(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat ? DType::fp32 : DType::bf16; }

/// One exchange of rows, and one of weights if there are any.
void exchange(comm::Collectives& experts, const RowsAndWeights& mine, const std::vector<std::int64_t>& to,
              const RowsAndWeights& theirs, const std::vector<std::int64_t>& from) {
  const std::int64_t width = mine.rows.size(1);
  experts.all_to_all(mine.rows.const_data_ptr(), times(to, width), theirs.rows.mutable_data_ptr(), times(from, width),
                     type_of(mine.rows));
  if (mine.weights.defined())
    experts.all_to_all(mine.weights.const_data_ptr(), to, theirs.weights.mutable_data_ptr(), from, DType::fp32);
}

void move(const at::Tensor& from, std::span<const std::int64_t> from_begin, std::span<const std::int64_t> to_begin,
          const at::Tensor& to) {
  if (!from.defined() || from.size(0) == 0) return;
  const auto matrix = [](const at::Tensor& t) { return t.dim() == 2 ? t : t.unsqueeze(1); };
  kernels::move_segments(matrix(from), from_begin, to_begin, matrix(to));
}

RowsAndWeights like(const RowsAndWeights& rows) {
  return {.rows = at::empty_like(rows.rows),
          .weights = rows.weights.defined() ? at::empty_like(rows.weights) : at::Tensor()};
}

}  // namespace

void exchange_counts_on_device(comm::Collectives& experts, kernels::ExpertRows& mine, RowCounts& counts,
                               std::int64_t tokens, const std::string& what) {
  const auto ranks = static_cast<std::size_t>(experts.size());
  const at::Tensor& begin = mine.begin_on_device;
  const std::int64_t count = begin.numel() - 1, held = count / experts.size();
  const at::Tensor all = at::empty({3, count}, begin.options());  // this rank's, sent, received
  at::Tensor of_mine = all[0], send = all[1], receive = all[2];
  of_mine.copy_(begin.narrow(0, 1, count) - begin.narrow(0, 0, count));
  send.copy_(of_mine);
  if (const auto wrong = wrong_count()) send.narrow(0, (experts.rank() + 1) % experts.size() * held, 1).fill_(*wrong);
  const std::vector<std::int64_t> each(ranks, held);
  experts.all_to_all(send.const_data_ptr(), each, receive.mutable_data_ptr(), each, DType::fp32);  // as large as int32
  const at::Tensor here = device::on_host(all);
  const auto* const numbers = here.const_data_ptr<std::int32_t>();
  counts.to.assign(numbers, numbers + count);
  mine.begin.assign(1, 0);
  for (const std::int64_t of_expert : counts.to) mine.begin.push_back(mine.begin.back() + of_expert);
  take_counts({numbers + 2 * count, static_cast<std::size_t>(count)}, counts, experts.rank(), experts.size(), tokens,
              what);
}

RowsAndWeights to_experts_on_device(comm::Collectives& experts, const RowCounts& counts, const RowsAndWeights& mine) {
  const int ranks = experts.size();
  const ByRank rows = by_rank(counts, ranks);
  RowsAndWeights arrived = rows_like(mine, counts.received());
  exchange(experts, mine, rows.to, arrived, rows.from);
  if (counts.to.size() == static_cast<std::size_t>(ranks)) return arrived;  // one expert each: sorted as they are
  const Segments segments = segments_of(counts, ranks, /*order_of_ranks=*/false);
  RowsAndWeights out = like(arrived);
  move(arrived.rows, segments.by_rank, segments.by_expert, out.rows);
  move(arrived.weights, segments.by_rank, segments.by_expert, out.weights);
  return out;
}

RowsAndWeights from_experts_on_device(comm::Collectives& experts, const RowCounts& counts,
                                      const RowsAndWeights& received) {
  const int ranks = experts.size();
  const ByRank rows = by_rank(counts, ranks);
  RowsAndWeights leaving = received;
  if (counts.to.size() != static_cast<std::size_t>(ranks)) {
    const Segments segments = segments_of(counts, ranks, /*order_of_ranks=*/true);
    leaving = like(received);
    move(received.rows, segments.by_expert, segments.by_rank, leaving.rows);
    move(received.weights, segments.by_expert, segments.by_rank, leaving.weights);
  }
  RowsAndWeights out = rows_like(received, counts.mine());
  exchange(experts, leaving, rows.from, out, rows.to);
  return out;
}

}  // namespace trireme::executor

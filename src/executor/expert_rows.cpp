// SPDX-License-Identifier: Apache-2.0
#include "executor/expert_rows.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"

namespace trireme::executor {
namespace {

std::int64_t sum_of(const std::vector<std::int64_t>& counts, std::size_t first, std::size_t count) {
  const auto begin = counts.begin() + static_cast<std::ptrdiff_t>(first);
  return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), std::int64_t{0});
}

/// Send or receive buffer of an exchange: for each rank its rows, followed by their weights. Counted in pairs of bytes,
/// since rows of all types consist of whole pairs.
class Buffer {
 public:
  Buffer(const std::vector<std::int64_t>& rows, const RowsAndWeights& like)
      : row_bytes_(like.rows.size(1) * static_cast<std::int64_t>(like.rows.element_size())),
        weight_bytes_(like.weights.defined() ? std::int64_t{sizeof(float)} : 0) {
    std::int64_t total = 0;
    for (const std::int64_t count : rows) {
      rows_at_.push_back(total);
      weights_at_.push_back(total + count * row_bytes_);
      pairs_.push_back(count * (row_bytes_ + weight_bytes_) / 2);
      total += 2 * pairs_.back();
    }
    memory_ = at::empty({total}, like.rows.options().dtype(at::kByte));
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_.mutable_data_ptr()); }
  [[nodiscard]] const std::vector<std::int64_t>& pairs() const { return pairs_; }

  /// Copies `count` rows of `rank`, the first of which is its row `at`, from or to rows `first` on of a tensor.
  void put(std::size_t rank, std::int64_t at, const RowsAndWeights& from, std::int64_t first,
           std::int64_t count) const {
    copy(data() + rows_at_[rank] + at * row_bytes_, bytes_of(from.rows) + first * row_bytes_, count * row_bytes_);
    if (weight_bytes_ > 0)
      copy(data() + weights_at_[rank] + at * weight_bytes_, bytes_of(from.weights) + first * weight_bytes_,
           count * weight_bytes_);
  }
  void take(std::size_t rank, std::int64_t at, const RowsAndWeights& to, std::int64_t first, std::int64_t count) const {
    copy(bytes_of(to.rows) + first * row_bytes_, data() + rows_at_[rank] + at * row_bytes_, count * row_bytes_);
    if (weight_bytes_ > 0)
      copy(bytes_of(to.weights) + first * weight_bytes_, data() + weights_at_[rank] + at * weight_bytes_,
           count * weight_bytes_);
  }

 private:
  static std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }
  static void copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  std::int64_t row_bytes_, weight_bytes_;
  std::vector<std::int64_t> rows_at_, weights_at_, pairs_;
  at::Tensor memory_;
};

/// Calls move(rank, at, first, count) for the rows that rank `rank` has for each of this rank's experts: rows `at` on
/// of that rank's, rows `first` on of all that are sorted by expert.
template <class Move>
void each_received(const RowCounts& counts, int ranks, const Move& move) {
  const std::size_t held = counts.to.size() / static_cast<std::size_t>(ranks);
  std::vector<std::int64_t> at(static_cast<std::size_t>(ranks), 0);
  std::int64_t first = 0;
  for (std::size_t expert = 0; expert < held; ++expert)
    for (std::size_t rank = 0; rank < at.size(); ++rank) {
      const std::int64_t count = counts.from[rank * held + expert];
      move(rank, at[rank], first, count);
      at[rank] += count;
      first += count;
    }
}

}  // namespace

ByRank by_rank(const RowCounts& counts, int ranks) {
  ByRank rows;
  const std::size_t held = counts.to.size() / static_cast<std::size_t>(ranks);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    rows.to.push_back(sum_of(counts.to, rank * held, held));
    rows.from.push_back(sum_of(counts.from, rank * held, held));
  }
  return rows;
}

RowsAndWeights rows_like(const RowsAndWeights& like, std::int64_t count) {
  RowsAndWeights out{.rows = at::empty({count, like.rows.size(1)}, like.rows.options()), .weights = {}};
  if (like.weights.defined()) out.weights = at::empty({count}, like.weights.options());
  return out;
}

std::vector<std::int64_t> RowCounts::begins(int ranks) const {
  const std::size_t held = to.size() / static_cast<std::size_t>(ranks);
  std::vector<std::int64_t> begin{0};
  for (std::size_t expert = 0; expert < held; ++expert) {
    std::int64_t rows = 0;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) rows += from[rank * held + expert];
    begin.push_back(begin.back() + rows);
  }
  return begin;
}

std::int64_t RowCounts::mine() const { return sum_of(to, 0, to.size()); }
std::int64_t RowCounts::received() const { return sum_of(from, 0, from.size()); }
std::int64_t RowCounts::kept(int rank, int ranks) const {
  const std::size_t held = to.size() / static_cast<std::size_t>(ranks);
  return sum_of(to, static_cast<std::size_t>(rank) * held, held);
}

std::optional<std::int32_t> wrong_count() {
  if (fault::point("experts.counts")) return -7;
  if (fault::point("experts.overflow")) return std::numeric_limits<std::int32_t>::max();
  return std::nullopt;
}

void exchange_counts(comm::Collectives& experts, RowCounts& counts, std::int64_t tokens, const std::string& what) {
  const auto ranks = static_cast<std::size_t>(experts.size());
  const std::size_t held = counts.to.size() / ranks;
  std::vector<std::int32_t> send(counts.to.begin(), counts.to.end()), receive(send.size());
  if (const auto wrong = wrong_count()) send[(static_cast<std::size_t>(experts.rank()) + 1) % ranks * held] = *wrong;
  const std::vector<std::int64_t> each(ranks, static_cast<std::int64_t>(held));
  experts.all_to_all(send.data(), each, receive.data(), each, DType::fp32);  // whose size int32 has
  take_counts(receive, counts, experts.rank(), experts.size(), tokens, what);
}

void take_counts(std::span<const std::int32_t> received, RowCounts& counts, int rank, int ranks, std::int64_t tokens,
                 const std::string& what) {
  const std::size_t held = received.size() / static_cast<std::size_t>(ranks);
  const auto cannot_be = [&](std::int32_t count) { return count < 0 || count > tokens; };
  if (const auto wrong = std::ranges::find_if(received, cannot_be); wrong != received.end()) {
    const auto at = static_cast<std::size_t>(wrong - received.begin());
    throw BugError(fmt::format("{}: expert rank {} has {} rows for expert {} of expert rank {}, but {} tokens", what,
                               at / held, *wrong, at % held, rank, tokens));
  }
  counts.from.assign(received.begin(), received.end());
}

RowsAndWeights to_experts(comm::Collectives& experts, const RowCounts& counts, const RowsAndWeights& mine) {
  if (mine.rows.is_cuda()) return to_experts_on_device(experts, counts, mine);
  const int ranks = experts.size();
  const ByRank rows = by_rank(counts, ranks);
  const Buffer send(rows.to, mine), receive(rows.from, mine);
  std::int64_t first = 0;
  for (std::size_t rank = 0; rank < rows.to.size(); first += rows.to[rank], ++rank)
    send.put(rank, 0, mine, first, rows.to[rank]);
  experts.all_to_all(send.data(), send.pairs(), receive.data(), receive.pairs(), DType::bf16);
  const RowsAndWeights out = rows_like(mine, counts.received());
  each_received(counts, ranks, [&](std::size_t rank, std::int64_t at, std::int64_t to, std::int64_t count) {
    receive.take(rank, at, out, to, count);
  });
  return out;
}

RowsAndWeights from_experts(comm::Collectives& experts, const RowCounts& counts, const RowsAndWeights& received) {
  if (received.rows.is_cuda()) return from_experts_on_device(experts, counts, received);
  const int ranks = experts.size();
  const ByRank rows = by_rank(counts, ranks);
  const Buffer send(rows.from, received), receive(rows.to, received);
  each_received(counts, ranks, [&](std::size_t rank, std::int64_t at, std::int64_t from, std::int64_t count) {
    send.put(rank, at, received, from, count);
  });
  experts.all_to_all(send.data(), send.pairs(), receive.data(), receive.pairs(), DType::bf16);
  const RowsAndWeights out = rows_like(received, counts.mine());
  std::int64_t first = 0;
  for (std::size_t rank = 0; rank < rows.to.size(); first += rows.to[rank], ++rank)
    receive.take(rank, 0, out, first, rows.to[rank]);
  return out;
}

}  // namespace trireme::executor

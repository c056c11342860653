// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/collectives.hpp"
#include "trireme/kernels/experts.hpp"

/// Rows of tokens between the ranks that divide the experts of a layer. On CPUs plain loops, since the lane's thread
/// has no team; on GPUs rows are exchanged where they lie (device/expert_rows.cpp).
namespace trireme::executor {

/// How many rows of a microbatch go where.
struct RowCounts {
  std::vector<std::int64_t> to;    ///< [E]: this rank's for each expert; those of a rank's experts follow each other
  std::vector<std::int64_t> from;  ///< [ranks, E / ranks]: every rank's for each of this rank's experts
  at::Tensor loads;                ///< fp32 [B, E], where a router's backward reads them: choices in each sequence

  /// Where the rows of each of this rank's experts begin, and the last ones end: [E / ranks + 1]. They are sorted by
  /// expert, then by the rank that they come from, then as that one has them.
  [[nodiscard]] std::vector<std::int64_t> begins(int ranks) const;
  /// All rows of `to`, of `from`, and what of each is this rank's own.
  [[nodiscard]] std::int64_t mine() const;
  [[nodiscard]] std::int64_t received() const;
  [[nodiscard]] std::int64_t kept(int rank, int ranks) const;
};

/// A number that tests send in place of a count.
[[nodiscard]] std::optional<std::int32_t> wrong_count();

/// Fills counts.from. tokens: of every rank; no expert gets more rows of a rank. Throws BugError, naming `what` and the
/// rank, for a count that cannot be. Collective.
void exchange_counts(comm::Collectives& experts, RowCounts& counts, std::int64_t tokens, const std::string& what);

/// The same of rows on a GPU, whose `begin` is there: fills it and counts.to, too. The one wait of the host for a layer
/// and microbatch.
void exchange_counts_on_device(comm::Collectives& experts, kernels::ExpertRows& mine, RowCounts& counts,
                               std::int64_t tokens, const std::string& what);
/// Fills counts.from with what came. Throws as exchange_counts.
void take_counts(std::span<const std::int32_t> received, RowCounts& counts, int rank, int ranks, std::int64_t tokens,
                 const std::string& what);

/// Rows for each rank, and from each.
struct ByRank {
  std::vector<std::int64_t> to, from;
};
[[nodiscard]] ByRank by_rank(const RowCounts& counts, int ranks);

/// Rows, and a number for each where that is defined.
struct RowsAndWeights {
  at::Tensor rows;     ///< [R, D]
  at::Tensor weights;  ///< fp32 [R]
};
/// Room for `count` rows, with weights where `like` has them.
[[nodiscard]] RowsAndWeights rows_like(const RowsAndWeights& like, std::int64_t count);
/// This rank's rows, sorted by expert, to the experts: returns all rows of this rank's experts. Collective.
[[nodiscard]] RowsAndWeights to_experts(comm::Collectives& experts, const RowCounts& counts,
                                        const RowsAndWeights& mine);
/// The inverse.
[[nodiscard]] RowsAndWeights from_experts(comm::Collectives& experts, const RowCounts& counts,
                                          const RowsAndWeights& received);
[[nodiscard]] RowsAndWeights to_experts_on_device(comm::Collectives& experts, const RowCounts& counts,
                                                  const RowsAndWeights& mine);
[[nodiscard]] RowsAndWeights from_experts_on_device(comm::Collectives& experts, const RowCounts& counts,
                                                    const RowsAndWeights& received);

}  // namespace trireme::executor

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
/// has no team; on GPUs rows are exchanged in place (device/expert_rows.cpp).
namespace trireme::executor {

/// Row counts of a microbatch by expert and rank.
struct RowCounts {
  std::vector<std::int64_t> to;    ///< [E]: this rank's for each expert; those of a rank's experts follow each other
  std::vector<std::int64_t> from;  ///< [ranks, E / ranks]: every rank's for each of this rank's experts
  at::Tensor loads;                ///< fp32 [B, E], where a router's backward reads them: choices in each sequence

  /// Begins of the rows of each of this rank's experts, and the end of the last: [E / ranks + 1]. They are sorted by
  /// expert, then by source rank, then in the source's order.
  [[nodiscard]] std::vector<std::int64_t> begins(int ranks) const;
  /// Sums of `to` and of `from`, and the number of rows in both, which stay on this rank.
  [[nodiscard]] std::int64_t mine() const;
  [[nodiscard]] std::int64_t received() const;
  [[nodiscard]] std::int64_t kept(int rank, int ranks) const;
};

/// A number that tests send in place of a count.
[[nodiscard]] std::optional<std::int32_t> wrong_count();

/// Fills counts.from. tokens: of every rank, the maximum number of rows for an expert from a rank. Throws BugError,
/// with `what` and the rank, for an invalid count. Collective.
void exchange_counts(comm::Collectives& experts, RowCounts& counts, std::int64_t tokens, const std::string& what);

/// The same of rows on a GPU, whose `begin` is there: fills it and counts.to, too. The one wait of the host for a layer
/// and microbatch.
void exchange_counts_on_device(comm::Collectives& experts, kernels::ExpertRows& mine, RowCounts& counts,
                               std::int64_t tokens, const std::string& what);
/// Fills counts.from from received counts. Throws as exchange_counts.
void take_counts(std::span<const std::int32_t> received, RowCounts& counts, int rank, int ranks, std::int64_t tokens,
                 const std::string& what);

/// Rows for each rank, and from each.
struct ByRank {
  std::vector<std::int64_t> to, from;
};
[[nodiscard]] ByRank by_rank(const RowCounts& counts, int ranks);

/// Rows, and a number for each if that is defined.
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

// SPDX-License-Identifier: Apache-2.0
#include "trireme/optimizer/owners.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/model/tensor_plan.hpp"

namespace trireme::optimizer {
namespace {

/// The matrices of a block, without owners.
std::vector<Matrix> matrices_of(const model::Model& model, ParamBlock block, const OwnerOptions& options) {
  std::vector<Matrix> matrices;
  const std::vector<model::Parameter>& parameters = model[block].parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!takes_muon(parameters[p], options.adamw)) continue;
    const std::vector<std::int64_t> shape = parameters[p].full_shape();
    invariant(shape.size() == 2, "Muon's parameters are matrices");
    const int sections = model::rule_of(parameters[p].role, model.sizes.decoder).sections;
    const std::int64_t rows = shape[0] / sections;
    for (int section = 0; section < sections; ++section)
      matrices.push_back({.block = block,
                          .parameter = static_cast<int>(p),
                          .first = section * rows * shape[1],
                          .rows = rows,
                          .columns = shape[1]});
  }
  return matrices;
}

std::int64_t elements_of(std::span<const Matrix> matrices) {
  return std::accumulate(matrices.begin(), matrices.end(), std::int64_t{0},
                         [](std::int64_t sum, const Matrix& matrix) { return sum + matrix.elements(); });
}

std::int64_t elements_of(std::span<const MatrixPiece> pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0},
                         [](std::int64_t sum, const MatrixPiece& piece) { return sum + piece.hyperslab.size(); });
}

/// Gives matrices to ranks.
class Owners {
 public:
  explicit Owners(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) least_.emplace(0, rank);
  }
  void assign(std::span<Matrix> block) {
    std::vector<Matrix*> order;
    for (Matrix& matrix : block) order.push_back(&matrix);
    std::ranges::stable_sort(order, std::greater<>(),
                             [](const Matrix* matrix) { return newton_schulz_flops(*matrix); });
    for (Matrix* const matrix : order) {
      const auto [work, rank] = least_.top();
      least_.pop();
      matrix->owner = rank;
      least_.emplace(work + newton_schulz_flops(*matrix), rank);
    }
  }

 private:
  using Load = std::pair<double, int>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least_;
};

}  // namespace

double newton_schulz_flops(const Matrix& matrix) {
  const auto small = static_cast<double>(std::min(matrix.rows, matrix.columns)),
             large = static_cast<double>(std::max(matrix.rows, matrix.columns));
  return 5 * (4 * small * small * large + 2 * small * small * small);
}

OwnerPlan::OwnerPlan(const model::Model& model, const shard::Layout& layout, const OwnerOptions& options)
    : model_(model), layout_(layout), type_(options.type) {
  const std::int64_t most = options.window.value / size_of(type_) * ranks();
  Owners owners(ranks());
  std::int64_t elements = 0;  // of the last window
  for (int b = 0; b < layout.blocks(); ++b) {
    std::vector<Matrix> matrices = matrices_of(model, ParamBlock{b}, options);
    if (matrices.empty()) continue;
    owners.assign(matrices);
    const std::int64_t of_block = elements_of(matrices);
    if (windows_.empty() || elements + of_block > most) {
      windows_.push_back({.first = ParamBlock{b}, .last = ParamBlock{b}, .matrices = {}});
      elements = 0;
    }
    elements += of_block;
    MatrixWindow& window = windows_.back();
    window.last = ParamBlock{b};
    window.matrices.insert(window.matrices.end(), matrices.begin(), matrices.end());
  }
}

int OwnerPlan::window_of(ParamBlock block) const {
  const auto found = std::ranges::find_if(
      windows_, [&](const MatrixWindow& window) { return window.first <= block && block <= window.last; });
  invariant(found != windows_.end(), "a block with matrices is in a window");
  return static_cast<int>(found - windows_.begin());
}

std::vector<MatrixPiece> OwnerPlan::pieces_of(const MatrixWindow& window, int matrix, int rank) const {
  const Matrix& of = window.matrices[static_cast<std::size_t>(matrix)];
  const shard::BlockLayout& layout = layout_[of.block];
  const int tensor = model_.part.ranks, index = layout.shards() == layout_.shards() ? rank / tensor : rank;
  const shard::Range mine = layout.shard(index), whole = layout.range(of.parameter);
  const shard::Range common{.begin = std::max(mine.begin, whole.begin), .end = std::min(mine.end, whole.end)};
  if (common.empty()) return {};
  const model::Parameter parameter = model::as_held_by(model_[model::ParamRef{of.block, of.parameter}], rank % tensor);
  std::vector<shard::Slice> slices;
  for (const model::Extent& run : model::extents(parameter, common.begin - whole.begin, common.end - whole.begin)) {
    const std::int64_t begin = std::max(run.whole, of.first),
                       end = std::min(run.whole + run.count, of.first + of.elements());
    if (begin >= end) continue;
    slices.push_back({.parameter = of.parameter,
                      .elements = {.begin = begin - of.first, .end = end - of.first},
                      .offset = whole.begin - mine.begin + run.held + begin - run.whole});
  }
  std::vector<MatrixPiece> pieces;
  for (const shard::StridedSlice& slice : shard::fold(model_[of.block], slices))
    pieces.push_back({.matrix = matrix, .offset = slice.offset, .hyperslab = slice.hyperslab});
  return pieces;
}

std::vector<MatrixPiece> OwnerPlan::pieces(int window, int rank) const {
  const MatrixWindow& of = windows_[static_cast<std::size_t>(window)];
  std::vector<int> order(of.matrices.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int matrix) { return of.matrices[static_cast<std::size_t>(matrix)].owner; });
  std::vector<MatrixPiece> all;
  std::int64_t place = 0;
  for (const int matrix : order)
    for (MatrixPiece piece : pieces_of(of, matrix, rank)) {
      piece.place = place;
      place += piece.hyperslab.size();
      all.push_back(piece);
    }
  return all;
}

std::vector<std::vector<MatrixPiece>> OwnerPlan::owned(int window, int owner) const {
  const MatrixWindow& of = windows_[static_cast<std::size_t>(window)];
  std::vector<std::vector<MatrixPiece>> by_rank(static_cast<std::size_t>(ranks()));
  std::int64_t place = 0;
  for (int rank = 0; rank < ranks(); ++rank)
    for (std::size_t m = 0; m < of.matrices.size(); ++m) {
      if (of.matrices[m].owner != owner) continue;
      for (MatrixPiece piece : pieces_of(of, static_cast<int>(m), rank)) {
        piece.place = place;
        place += piece.hyperslab.size();
        by_rank[static_cast<std::size_t>(rank)].push_back(piece);
      }
    }
  return by_rank;
}

std::vector<OwnerPlan::Buffers> OwnerPlan::buffers(int rank) const {
  std::vector<Buffers> slots(std::min<std::size_t>(matrix_slots, windows_.size()));
  for (std::size_t w = 0; w < windows_.size(); ++w) {
    Buffers& slot = slots[w % matrix_slots];
    const auto window = static_cast<int>(w);
    slot.pieces = std::max(slot.pieces, elements_of(pieces(window, rank)));
    if (ranks() == 1) continue;
    std::int64_t received = 0;
    for (const std::vector<MatrixPiece>& of_rank : owned(window, rank)) received += elements_of(of_rank);
    slot.owned = std::max(slot.owned, received);
  }
  return slots;
}

Bytes OwnerPlan::buffer_bytes(int rank) const {
  Bytes bytes;
  for (const Buffers& slot : buffers(rank)) bytes += Bytes{(slot.pieces + slot.owned) * size_of(type_)};
  return bytes;
}

OwnerPlan::Buffers OwnerPlan::sent(int window, int rank) const {
  const MatrixWindow& of = windows_[static_cast<std::size_t>(window)];
  Buffers sent;
  for (const MatrixPiece& piece : pieces(window, rank))
    if (of.matrices[static_cast<std::size_t>(piece.matrix)].owner != rank) sent.pieces += piece.hyperslab.size();
  const auto owned_here = owned(window, rank);
  for (int other = 0; other < ranks(); ++other)
    if (other != rank) sent.owned += elements_of(owned_here[static_cast<std::size_t>(other)]);
  return sent;
}

std::vector<double> OwnerPlan::flops() const {
  std::vector<double> sum(static_cast<std::size_t>(ranks()));
  for (int window = 0; window < static_cast<int>(windows_.size()); ++window)
    std::ranges::transform(sum, flops(window), sum.begin(), std::plus<>());
  return sum;
}

std::vector<double> OwnerPlan::flops(int window) const {
  std::vector<double> by_rank(static_cast<std::size_t>(ranks()));
  for (const Matrix& matrix : windows_[static_cast<std::size_t>(window)].matrices)
    by_rank[static_cast<std::size_t>(matrix.owner)] += newton_schulz_flops(matrix);
  return by_rank;
}

}  // namespace trireme::optimizer

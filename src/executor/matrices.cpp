// SPDX-License-Identifier: Apache-2.0
#include "executor/matrices.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/nn/frame.hpp"

namespace trireme::executor {
namespace {

/// Calls move(place in the matrix, place in the messages, bytes) for every run of a piece.
template <class Move>
void each_run(const shard::Hyperslab& hyperslab, std::int64_t place, std::int64_t width, const Move& move) {
  for (std::int64_t run = 0; run < hyperslab.count; ++run)
    move((hyperslab.first + run * hyperslab.stride) * width, (place + run * hyperslab.length) * width,
         static_cast<std::size_t>(hyperslab.length * width));
}

std::set<ParamBlock> blocks_of(const optimizer::OwnerPlan& owners) {
  std::set<ParamBlock> blocks;
  for (const optimizer::MatrixWindow& window : owners.windows())
    for (const optimizer::Matrix& matrix : window.matrices) blocks.insert(matrix.block);
  return blocks;
}

void require_ops(const optimizer::OwnerPlan& owners, const schedule::Schedule& schedule, const model::Model& model) {
  std::set<ParamBlock> updated;
  for (const schedule::Op& op : schedule.ops)
    if (const auto* update = std::get_if<schedule::Update>(&op); update != nullptr && update->matrices)
      updated.insert(update->block);
  for (const ParamBlock block : blocks_of(owners))
    invariant(updated.contains(block), fmt::format("the schedule updates the matrices of {}", model[block].name));
}

}  // namespace

MatrixExchange::MatrixExchange(const optimizer::OptimizerPlan& plan, const model::Model& model,
                               const store::ParameterStore& store, const schedule::Schedule& schedule)
    : type_(plan.matrices().value().type) {
  for (const optimizer::NewtonSchulzStep& step : optimizer::newton_schulz_steps(plan.settings().newton_schulz))
    steps_.push_back(step);
  const optimizer::OwnerPlan owners(model, store.layout(), *plan.matrices());
  require_ops(owners, schedule, model);
  const int rank = owners.rank_of(store.shard_rank());
  for (int w = 0; w < static_cast<int>(owners.windows().size()); ++w) {
    const optimizer::MatrixWindow& from = owners.windows()[static_cast<std::size_t>(w)];
    Window& to = windows_[from.first];
    to.counts.pieces.resize(static_cast<std::size_t>(owners.ranks()));
    for (const optimizer::MatrixPiece& piece : owners.pieces(w, rank))
      to.counts.pieces[static_cast<std::size_t>(from.matrices[static_cast<std::size_t>(piece.matrix)].owner)] +=
          piece.hyperslab.size();
    std::map<int, Owned> owned;
    for (const std::vector<optimizer::MatrixPiece>& of_rank : owners.owned(w, rank)) {
      std::int64_t& count = to.counts.owned.emplace_back(0);
      for (const optimizer::MatrixPiece& piece : of_rank) {
        const optimizer::Matrix& matrix = from.matrices[static_cast<std::size_t>(piece.matrix)];
        Owned& of = owned[piece.matrix];
        of.rows = matrix.rows;
        of.columns = matrix.columns;
        of.pieces.push_back({piece.hyperslab, piece.place});
        count += piece.hyperslab.size();
      }
    }
    for (auto& [matrix, of] : owned) to.matrices.push_back(std::move(of));
    add_ranges(plan, model, owners, w, rank);
  }
}

void MatrixExchange::add_ranges(const optimizer::OptimizerPlan& plan, const model::Model& model,
                                const optimizer::OwnerPlan& owners, int window, int rank) {
  const optimizer::MatrixWindow& from = owners.windows()[static_cast<std::size_t>(window)];
  for (const optimizer::MatrixPiece& piece : owners.pieces(window, rank)) {
    const optimizer::Matrix& matrix = from.matrices[static_cast<std::size_t>(piece.matrix)];
    const optimizer::Group& group =
        plan.groups()[static_cast<std::size_t>(plan.group_of(model[model::ParamRef{matrix.block, matrix.parameter}]))];
    ranges_[matrix.block].push_back(
        {.offset = piece.offset,
         .place = piece.place,
         .elements = piece.hyperslab.size(),
         .scale = group.lr * optimizer::muon_scale(plan.settings().scale, matrix.rows, matrix.columns),
         .weight_decay = group.lr * group.weight_decay});
  }
}

std::span<const optim::MatrixRange> MatrixExchange::ranges(ParamBlock block) const {
  const auto found = ranges_.find(block);
  return found == ranges_.end() ? std::span<const optim::MatrixRange>() : found->second;
}

const MatrixExchange::Window& MatrixExchange::window(const schedule::Matrices& of) const {
  const auto found = windows_.find(of.first);
  invariant(found != windows_.end(), "the ops of matrices are of a window of their owners");
  return found->second;
}

void MatrixExchange::orthogonalize(const schedule::Matrices& of, const at::Tensor& messages,
                                   const optim::Team& team) const {
  const std::vector<Owned>& matrices = window(of).matrices;
  const std::int64_t width = size_of(type_);
  auto* const bytes = static_cast<std::byte*>(messages.mutable_data_ptr());
  optim::for_matrices(team, type_, static_cast<std::int64_t>(matrices.size()), [&](std::int64_t i) {
    const nn::PlainOperators guard;
    const device::ChargeTo charge(device::Category::workspace);
    const Owned& owned = matrices[static_cast<std::size_t>(i)];
    const at::Tensor u = at::empty({owned.rows, owned.columns}, device::to_torch(type_));
    auto* const whole = static_cast<std::byte*>(u.mutable_data_ptr());
    for (const Piece& piece : owned.pieces)
      each_run(piece.hyperslab, piece.place, width,
               [&](std::int64_t in_matrix, std::int64_t in_messages, std::size_t count) {
                 std::memcpy(whole + in_matrix, bytes + in_messages, count);
               });
    const at::Tensor x = optim::orthogonalized(u, steps_, team);
    const auto* const found = static_cast<const std::byte*>(x.const_data_ptr());
    for (const Piece& piece : owned.pieces)
      each_run(piece.hyperslab, piece.place, width,
               [&](std::int64_t in_matrix, std::int64_t in_messages, std::size_t count) {
                 std::memcpy(bytes + in_messages, found + in_matrix, count);
               });
  });
}

}  // namespace trireme::executor

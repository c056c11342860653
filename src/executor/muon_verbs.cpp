// SPDX-License-Identifier: Apache-2.0
// The verbs of Muon. A skipped step leaves momentum and masters, on all ranks alike, and exchanges nothing.
#include "executor/arithmetic.hpp"
#include "executor/verbs.hpp"

namespace trireme::executor {

optim::MuonStep Verbs::muon_numbers() const {
  return {.lr = decision_.lr,
          .momentum = optimizer_.settings().momentum,
          .nesterov = optimizer_.settings().nesterov,
          .gradient_factor = decision_.gradient_factor};
}

void Verbs::run(const schedule::PrepareMatrices& op) {
  if (decision_.skipped) return;
  for (ParamBlock block = op.of.first; block <= op.of.last; ++block.value)
    optim::prepare_matrices(muon_numbers(), matrices_->ranges(block), floats(store_.gradient(block)),
                            floats(store_.state(block, 0)), store_.matrix_pieces(op.of.slot), compute_team_);
}

void Verbs::run(const schedule::GatherMatrices& op) {
  if (decision_.skipped) return;
  const MatrixExchange::Counts& counts = matrices_->counts(op.of);
  link(mesh::Group::fold, schedule::Lane::gather)
      .all_to_all(store_.matrix_pieces(op.of.slot).const_data_ptr(), counts.pieces,
                  store_.owned_matrices(op.of.slot).mutable_data_ptr(), counts.owned, matrices_->type());
}

void Verbs::run(const schedule::Orthogonalize& op) {
  if (decision_.skipped) return;
  matrices_->orthogonalize(op.of, op.in_place ? store_.matrix_pieces(op.of.slot) : store_.owned_matrices(op.of.slot),
                           compute_team_);
}

void Verbs::run(const schedule::ScatterMatrices& op) {
  if (decision_.skipped) return;
  const MatrixExchange::Counts& counts = matrices_->counts(op.of);
  link(mesh::Group::fold, schedule::Lane::reduce)
      .all_to_all(store_.owned_matrices(op.of.slot).const_data_ptr(), counts.owned,
                  store_.matrix_pieces(op.of.slot).mutable_data_ptr(), counts.pieces, matrices_->type());
}

}  // namespace trireme::executor

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "support/fuzz.hpp"
#include "support/jobs.hpp"

namespace trireme::test {

constexpr double loss_tolerance = 1e-6, norm_tolerance = 1e-5;
/// Between a token's last chosen expert and the next one, in what they are chosen by: several times what rounding
/// moves.
constexpr double router_margin = 3e-6;

/// Steps of a run that is compared with the plain program. The fixed cases of train/parity_mpi_test always have twenty,
/// those of one axis (tensor, context, pipeline) have them with tests/run.sh --long on at most four ranks.
inline int parity_steps() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return tries_everything() && ranks <= 4 ? 20 : 8;
}

/// Runs compared with the plain program, whose curve of a problem is computed once. Prints the largest deviations at
/// the end. `Case` has a member `problem`; problem_run(problem, files) returns that problem's run file.
template <class Case>
class ParityTest : public testing::TestWithParam<Case> {
 protected:
  using Problem = decltype(Case::problem);

  static void SetUpTestSuite() {
    world_ = new mpi::Communicator(mpi::Communicator::from(MPI_COMM_WORLD));
    files_ = new TokenFiles(*world_, 257);
  }
  static void TearDownTestSuite() {
    if (world_->rank() == 0)
      std::printf("largest deviations from the plain program: losses %.1e, gradient norms %.1e\n", worst_.loss,
                  worst_.grad_norm);
    delete files_;
    delete world_;
  }

  /// Collective over the world, the first time.
  static const Curve& plain(Problem problem) {
    auto& curve = curves_[problem];
    if (curve.losses.empty()) curve = plain_curve(problem_run(problem, *files_), *world_);
    EXPECT_GE(curve.router_margin, router_margin) << "another seed: rounding decides which expert a token goes to";
    return curve;
  }

  static void expect_parity(const Curve& curve, const Curve& expected) {
    const Deviation found = deviation(curve, expected);
    EXPECT_LE(found.loss, loss_tolerance);
    EXPECT_LE(found.grad_norm, norm_tolerance);
    worst_ = {std::max(worst_.loss, found.loss), std::max(worst_.grad_norm, found.grad_norm)};
  }

  static inline mpi::Communicator* world_ = nullptr;
  static inline TokenFiles* files_ = nullptr;

 private:
  static inline std::map<Problem, Curve> curves_;
  static inline Deviation worst_;
};

}  // namespace trireme::test

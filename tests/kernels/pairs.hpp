// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/kernels/gemm.hpp"

namespace trireme::test {

/// While it lives, products of bf16 are those of pairs where the CPU has them, or widened to fp32.
class Pairs {
 public:
  explicit Pairs(bool pairs) {
    kernels::GemmChoice choice = before_;
    choice.pairs = pairs;
    kernels::set_gemm_choice(choice);
  }
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;
  ~Pairs() { kernels::set_gemm_choice(before_); }

 private:
  kernels::GemmChoice before_ = kernels::gemm_choice();
};

}  // namespace trireme::test

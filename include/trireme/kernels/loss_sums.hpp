// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::kernels {

/// The losses of the counted tokens, summed in fp64 and not scaled. A device keeps them as [2] fp64, in this order.
struct LossSums {
  double cross_entropy = 0;  ///< of log(Z) - logit[target], where Z is the sum of exp(logit)
  double z_loss = 0;         ///< of z_loss * log(Z)^2 (PaLM, Chowdhery et al. 2022, section 5)

  LossSums& operator+=(const LossSums& more) {
    cross_entropy += more.cross_entropy;
    z_loss += more.z_loss;
    return *this;
  }
  friend bool operator==(const LossSums&, const LossSums&) = default;
};

}  // namespace trireme::kernels

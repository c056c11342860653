// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/stage_code.hpp"

#include "nn/codes.hpp"
#include "trireme/base/error.hpp"

namespace trireme::nn {

void StageCode::rebuild(StageFrame& /*f*/) const { throw BugError("a stage of this kind is not rebuilt"); }

void StageCode::backward_input(StageFrame& /*f*/) const {
  throw BugError("a stage of this kind does not split its backward");
}

void StageCode::backward_weight(StageFrame& /*f*/) const {
  throw BugError("a stage of this kind does not split its backward");
}

void StageCode::backward(StageFrame& f) const {
  backward_input(f);
  f.kept.keep_pending();
  backward_weight(f);
}

void StageCode::finish_backward(StageFrame& /*f*/) const {
  throw BugError("the gradients of a stage of this kind need no sums");
}

}  // namespace trireme::nn

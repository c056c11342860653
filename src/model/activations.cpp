// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/activations.hpp"

#include "trireme/base/error.hpp"

namespace trireme::model {

Bytes saved_bytes(StageKind kind, const Sizes& sizes, std::int64_t tokens, DType compute) {
  const std::int64_t width = size_of(compute);
  constexpr std::int64_t statistic = 4;  // fp32
  switch (kind) {
    case StageKind::embedding: return {0};
    case StageKind::attention: {
      const std::int64_t values = sizes.hidden + 2 * (sizes.heads + sizes.kv_heads) * sizes.head_dim;
      return {tokens * (width * values + statistic * (1 + sizes.heads))};
    }
    case StageKind::mlp: return {tokens * (width * (sizes.hidden + 2 * sizes.intermediate) + statistic)};
    case StageKind::head: return {tokens * width * sizes.hidden};
  }
  throw BugError("saved_bytes: unknown kind of stage");
}

}  // namespace trireme::model

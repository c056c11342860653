// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::schedule {

/// One op as a line: `unshard b3 -> ring1.0`, `forward b3.mlp m0`, `backward b3 m1 -> grad1.0 add`, `reduce_scatter b3
/// <- grad1.0`, `clip_norm`, `update b3`. Names are those of `model`.
[[nodiscard]] std::string print(const Op& op, const model::Model& model);

/// The whole schedule: a line `step microbatches=N`, then one op a line.
[[nodiscard]] std::string print(const Schedule& schedule, const model::Model& model);

/// The inverse of `print`. Blank lines and lines starting with # are ignored. Throws ConfigError with the line and the
/// expected text.
[[nodiscard]] Schedule parse(std::string_view text, const model::Model& model);

/// Hash of the printed text: equal schedules on all ranks have equal hashes.
[[nodiscard]] std::uint64_t hash(const Schedule& schedule, const model::Model& model);

}  // namespace trireme::schedule

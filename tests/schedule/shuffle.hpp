// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <random>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/schedule/op.hpp"

namespace trireme::schedule::testing {

/// The microbatch of a compute op or of a collective between two; -1: none.
inline int microbatch_of(const Op& op) {
  return std::visit(
      [](const auto& verb) {
        if constexpr (requires { verb.microbatch; })
          return verb.microbatch.value;
        else
          return -1;
      },
      op);
}

inline bool is_forward(const Op& op) {
  return std::visit(
      []<class Verb>(const Verb& verb) {
        if constexpr (requires { verb.phase; })
          return verb.phase == Phase::forward;
        else
          return std::is_same_v<Verb, Forward>;
      },
      op);
}

/// A pass over a compute order: all microbatches' forwards in one random merge, each in its own order, then their
/// backwards, microbatch by microbatch.
inline Schedule shuffle_forwards(const Schedule& order, unsigned seed) {
  std::vector<std::vector<Op>> forwards(static_cast<std::size_t>(order.microbatches));
  std::vector<Op> backwards;
  for (const Op& op : order.ops)
    (is_forward(op) ? forwards[static_cast<std::size_t>(microbatch_of(op))] : backwards).push_back(op);
  Schedule out{.microbatches = order.microbatches, .ops = {}};
  std::minstd_rand random(seed);
  std::vector<std::size_t> turns;  // whose op comes next
  for (std::size_t m = 0; m < forwards.size(); ++m) turns.insert(turns.end(), forwards[m].size(), m);
  for (std::size_t i = turns.size(); i > 1; --i) std::swap(turns[i - 1], turns[random() % i]);
  std::vector<std::size_t> at(forwards.size(), 0);
  for (const std::size_t m : turns) out.ops.push_back(forwards[m][at[m]++]);
  out.ops.insert(out.ops.end(), backwards.begin(), backwards.end());
  return out;
}

}  // namespace trireme::schedule::testing

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <optional>

#include "trireme/schedule/op.hpp"

/// Concepts that classify verbs by their fields. A visitor ignores unrelated verbs by these concepts and lists all
/// others by name, so that a new verb is not left out by mistake.
namespace trireme::schedule {

template <class Verb>
concept of_microbatch = requires(const Verb& verb) {
  { verb.microbatch } -> std::same_as<const Microbatch&>;
};

template <class Verb>
concept of_stage = requires(const Verb& verb) {
  verb.stage;
};

/// Before or after the ops that run one stage.
template <class Verb>
concept between_stages = requires(const Verb& verb) {
  verb.segment;
};

template <class Verb>
concept of_parameters = requires(const Verb& verb) {
  { verb.block } -> std::same_as<const ParamBlock&>;
};

template <class Verb>
concept of_edge = requires(const Verb& verb) {
  verb.edge;
};

template <class Verb>
concept takes_slot = requires(const Verb& verb) {
  verb.slot;
}
|| requires(const Verb& verb) { verb.staged; }
|| requires(const Verb& verb) { verb.gradients; };

/// Slot of a result or an input; nothing: in place.
template <class Placed>
[[nodiscard]] std::optional<Slot> slot_of(const Placed& placed) {
  return placed.in_place ? std::nullopt : std::optional(placed.slot);
}

}  // namespace trireme::schedule

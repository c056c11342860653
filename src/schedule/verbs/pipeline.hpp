// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verbs/verb.hpp"

/// Verbs between pipeline ranks.
namespace trireme::schedule {

/// `e3 m1`, `e3 m1 gradient`.
template <class Verb>
std::string edge_text(const Verb& op) {
  return fmt::format("e{} m{}{}", op.edge.value, op.microbatch.value, op.phase == Phase::backward ? " gradient" : "");
}
/// Edge, microbatch and phase.
template <class Verb>
Verb parse_edge(Line& line) {
  Verb op{.edge = Edge{line.prefixed("e", "an edge such as e0")}, .microbatch = line.microbatch(), .slot = {}};
  if (line.take_if("gradient")) op.phase = Phase::backward;
  return op;
}
inline int parse_peer(Line& line, std::string_view arrow) {
  line.take_word(arrow);
  return line.prefixed("p", "a pipeline rank such as p0");
}

template <>
struct Description<Put> {
  static constexpr Names<1> names{"put"};
  static Lane lane(const Put&) { return Lane::compute; }
  static void effects(const Put& op, Effects& on) {
    on.read(resource::Hidden{op.microbatch});
    on.write(resource::SendSlot{op.slot});
  }
  static std::string print(const Put& op, const model::Model&) {
    return fmt::format("{} -> {}", edge_text(op), slot_text("out", op.slot));
  }
  static Op parse(Line& line, std::string_view) {
    Put op = parse_edge<Put>(line);
    line.take_word("->");
    op.slot = line.slot("out");
    return op;
  }
};

template <>
struct Description<Send> {
  static constexpr Names<1> names{"send"};
  static Lane lane(const Send&) { return Lane::send; }
  // A step ends when its messages have: `clip_norm`, which writes the norm, waits for them.
  static void effects(const Send& op, Effects& on) {
    on.read(resource::SendSlot{op.slot});
    on.read(resource::Norm{});
  }
  static std::string print(const Send& op, const model::Model&) {
    return fmt::format("{} {} -> p{}", edge_text(op), slot_text("out", op.slot), op.peer);
  }
  static Op parse(Line& line, std::string_view) {
    Send op = parse_edge<Send>(line);
    op.slot = line.slot("out");
    op.peer = parse_peer(line, "->");
    return op;
  }
};

template <>
struct Description<Receive> {
  static constexpr Names<1> names{"receive"};
  static Lane lane(const Receive&) { return Lane::receive; }
  static void effects(const Receive& op, Effects& on) { on.write(resource::ReceiveSlot{op.slot}); }
  static std::string print(const Receive& op, const model::Model&) {
    return fmt::format("{} <- p{} -> {}", edge_text(op), op.peer, slot_text("in", op.slot));
  }
  static Op parse(Line& line, std::string_view) {
    Receive op = parse_edge<Receive>(line);
    op.peer = parse_peer(line, "<-");
    line.take_word("->");
    op.slot = line.slot("in");
    return op;
  }
};

template <>
struct Description<Take> {
  static constexpr Names<1> names{"take"};
  static Lane lane(const Take&) { return Lane::compute; }
  static void effects(const Take& op, Effects& on) {
    on.update(resource::ReceiveSlot{op.slot});
    on.write(resource::Hidden{op.microbatch});
  }
  static std::string print(const Take& op, const model::Model&) {
    return fmt::format("{} {}", edge_text(op), slot_text("in", op.slot));
  }
  static Op parse(Line& line, std::string_view) {
    Take op = parse_edge<Take>(line);
    op.slot = line.slot("in");
    return op;
  }
};

}  // namespace trireme::schedule

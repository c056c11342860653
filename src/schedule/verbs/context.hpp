// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verbs/tensor.hpp"

/// Collectives over the context axis.
namespace trireme::schedule {

template <>
struct Description<GatherKeys> {
  static constexpr Names<1> names{"gather_keys"};
  static Lane lane(const GatherKeys&) { return Lane::context; }
  static void effects(const GatherKeys& op, Effects& on) {
    if (op.phase == Phase::again)
      on.read(resource::Saved{op.block, op.stage, op.microbatch});
    else
      on.read(resource::Branch{op.microbatch});
    on.write(resource::Keys{op.microbatch});
  }
  static std::string print(const GatherKeys& op, const model::Model& model) { return stage_text(op, model); }
  static Op parse(Line& line, std::string_view) { return parse_stage<GatherKeys>(line); }
};

template <>
struct Description<ScatterKeys> {
  static constexpr Names<1> names{"scatter_keys"};
  static Lane lane(const ScatterKeys&) { return Lane::context; }
  static void effects(const ScatterKeys& op, Effects& on) {
    on.update(resource::Keys{op.microbatch});
    on.update(resource::Branch{op.microbatch});
  }
  static std::string print(const ScatterKeys& op, const model::Model& model) {
    return compute_text(model, op.block, op.stage, op.microbatch);
  }
  static Op parse(Line& line, std::string_view) {
    const auto [block, stage] = line.block_and_stage();
    return ScatterKeys{block, stage, line.microbatch()};
  }
};

template <>
struct Description<ExchangeHeads> {
  static constexpr Names<1> names{"exchange_heads"};
  static Lane lane(const ExchangeHeads&) { return Lane::context; }
  static void effects(const ExchangeHeads& op, Effects& on) { on.update(resource::Branch{op.microbatch}); }
  static std::string print(const ExchangeHeads& op, const model::Model& model) {
    return stage_text(op, model) + (op.to_heads ? " -> heads" : " -> tokens");
  }
  static Op parse(Line& line, std::string_view) {
    auto op = std::get<ExchangeHeads>(parse_stage<ExchangeHeads>(line));
    line.take_word("->");
    op.to_heads = line.take_if("heads");
    if (!op.to_heads) line.take_word("tokens");
    return op;
  }
};

}  // namespace trireme::schedule

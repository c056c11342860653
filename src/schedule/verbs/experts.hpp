// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verbs/tensor.hpp"

/// Exchanges between expert ranks.
namespace trireme::schedule {

template <>
struct Description<SumLoads> {
  static constexpr Names<1> names{"sum_loads"};
  static Lane lane(const SumLoads&) { return Lane::expert; }
  static void effects(const SumLoads& op, Effects& on) { on.update(resource::Counts{op.block, op.microbatch}); }
  static std::string print(const SumLoads& op, const model::Model& model) {
    return compute_text(model, op.block, op.stage, op.microbatch);
  }
  static Op parse(Line& line, std::string_view) {
    const auto [block, stage] = line.block_and_stage();
    return SumLoads{block, stage, line.microbatch()};
  }
};

template <>
struct Description<ExchangeCounts> {
  static constexpr Names<1> names{"exchange_counts"};
  static Lane lane(const ExchangeCounts&) { return Lane::expert; }
  static void effects(const ExchangeCounts& op, Effects& on) { on.update(resource::Counts{op.block, op.microbatch}); }
  static std::string print(const ExchangeCounts& op, const model::Model& model) {
    return compute_text(model, op.block, op.stage, op.microbatch);
  }
  static Op parse(Line& line, std::string_view) {
    const auto [block, stage] = line.block_and_stage();
    return ExchangeCounts{block, stage, line.microbatch()};
  }
};

/// Of what goes to experts, or comes from them.
template <class Exchange>
void rows_effects(const Exchange& op, Effects& on) {
  on.read(resource::Counts{op.block, op.microbatch});
  on.update(resource::Rows{op.microbatch});
}

template <>
struct Description<Dispatch> {
  static constexpr Names<1> names{"dispatch"};
  static Lane lane(const Dispatch&) { return Lane::expert; }
  static void effects(const Dispatch& op, Effects& on) { rows_effects(op, on); }
  static std::string print(const Dispatch& op, const model::Model& model) { return stage_text(op, model); }
  static Op parse(Line& line, std::string_view) { return parse_stage<Dispatch>(line); }
};

template <>
struct Description<Combine> {
  static constexpr Names<1> names{"combine"};
  static Lane lane(const Combine&) { return Lane::expert; }
  static void effects(const Combine& op, Effects& on) { rows_effects(op, on); }
  static std::string print(const Combine& op, const model::Model& model) { return stage_text(op, model); }
  static Op parse(Line& line, std::string_view) { return parse_stage<Combine>(line); }
};

}  // namespace trireme::schedule

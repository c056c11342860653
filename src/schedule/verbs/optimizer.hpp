// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verbs/verb.hpp"

/// Verbs of a step's tail.
namespace trireme::schedule {

template <>
struct Description<ClipNorm> {
  static constexpr Names<1> names{"clip_norm"};
  static Lane lane(const ClipNorm&) { return Lane::compute; }
  static void effects(const ClipNorm&, Effects& on) {
    for (int b = 0; b < on.model.param_blocks(); ++b) {
      on.read(resource::GradientShard{ParamBlock{b}});
      on.read(resource::NormPart{ParamBlock{b}});
    }
    on.write(resource::Norm{});
  }
  static std::string print(const ClipNorm&, const model::Model&) { return ""; }
  static Op parse(Line&, std::string_view) { return ClipNorm{}; }
};

template <>
struct Description<Update> {
  static constexpr Names<1> names{"update"};
  static Lane lane(const Update& op) {
    if (op.on_host) return Lane::host;
    return op.beside ? Lane::optimizer : Lane::compute;
  }
  static void effects(const Update& op, Effects& on) {
    on.read(resource::GradientShard{op.block});
    on.read(resource::Norm{});
    on.update(resource::MasterShard{op.block});
  }
  static std::string print(const Update& op, const model::Model& model) {
    return model[op.block].name + (op.on_host ? " on host" : "") + (op.beside ? " beside" : "");
  }
  static Op parse(Line& line, std::string_view) {
    const ParamBlock block = line.param_block();
    const bool on_host = line.take_if("on");
    if (on_host) line.take_word("host");
    return Update{block, on_host, line.take_if("beside")};
  }
};

/// The memory of gradient shards. On the compute lane, like activations: memory freed by one can be reused by the
/// other, and the amount in use at each op is known in advance.
template <>
struct Description<AllocateGradient> {
  static constexpr Names<1> names{"allocate_gradient"};
  static Lane lane(const AllocateGradient&) { return Lane::compute; }
  static void effects(const AllocateGradient& op, Effects& on) { on.write(resource::GradientShard{op.block}); }
  static std::string print(const AllocateGradient& op, const model::Model& model) { return model[op.block].name; }
  static Op parse(Line& line, std::string_view) { return AllocateGradient{line.param_block()}; }
};

template <>
struct Description<FreeGradient> {
  static constexpr Names<1> names{"free_gradient"};
  static Lane lane(const FreeGradient&) { return Lane::compute; }
  static void effects(const FreeGradient& op, Effects& on) { on.write(resource::GradientShard{op.block}); }
  static std::string print(const FreeGradient& op, const model::Model& model) { return model[op.block].name; }
  static Op parse(Line& line, std::string_view) { return FreeGradient{line.param_block()}; }
};

}  // namespace trireme::schedule

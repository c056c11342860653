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

}  // namespace trireme::schedule

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

/// The word of ops on the optimizer lane.
inline constexpr std::string_view on_optimizer_lane = "beside";

inline int matrix_slot(Line& line) { return line.prefixed("matrices", "a slot such as matrices0"); }

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
    if (op.matrices) on.read(resource::MatrixPieces{*op.matrices});
    on.update(resource::MasterShard{op.block});
  }
  static std::string print(const Update& op, const model::Model& model) {
    return fmt::format("{}{}{}{}{}", model[op.block].name, op.on_host ? " on host" : "", op.beside ? " " : "",
                       op.beside ? on_optimizer_lane : "",
                       op.matrices ? fmt::format(" with matrices{}", *op.matrices) : "");
  }
  static Op parse(Line& line, std::string_view) {
    const ParamBlock block = line.param_block();
    const bool on_host = line.take_if("on");
    if (on_host) line.take_word("host");
    const bool beside = line.take_if(on_optimizer_lane);
    Update op{block, on_host, beside};
    if (line.take_if("with")) op.matrices = matrix_slot(line);
    return op;
  }
};

/// Lines and resources that the verbs of Muon have in common.
inline std::string matrices_text(const Matrices& of, const model::Model& model) {
  return fmt::format("{} to {} in matrices{}{}{}", model[of.first].name, model[of.last].name, of.slot,
                     of.beside ? " " : "", of.beside ? on_optimizer_lane : "");
}
inline Matrices parse_matrices(Line& line) {
  Matrices of{.first = line.param_block()};
  line.take_word("to");
  of.last = line.param_block();
  line.take_word("in");
  of.slot = matrix_slot(line);
  of.beside = line.take_if(on_optimizer_lane);
  return of;
}

template <>
struct Description<PrepareMatrices> {
  static constexpr Names<1> names{"prepare_matrices"};
  static Lane lane(const PrepareMatrices& op) { return op.of.beside ? Lane::optimizer : Lane::compute; }
  static void effects(const PrepareMatrices& op, Effects& on) {
    on.read(resource::Norm{});
    for (ParamBlock block = op.of.first; block <= op.of.last; ++block.value) {
      on.read(resource::GradientShard{block});
      on.update(resource::MasterShard{block});
    }
    on.write(resource::MatrixPieces{op.of.slot});
  }
  static std::string print(const PrepareMatrices& op, const model::Model& model) { return matrices_text(op.of, model); }
  static Op parse(Line& line, std::string_view) { return PrepareMatrices{parse_matrices(line)}; }
};

template <>
struct Description<GatherMatrices> {
  static constexpr Names<1> names{"gather_matrices"};
  static Lane lane(const GatherMatrices&) { return Lane::gather; }
  static void effects(const GatherMatrices& op, Effects& on) {
    on.read(resource::Norm{});
    on.read(resource::MatrixPieces{op.of.slot});
    on.write(resource::OwnedMatrices{op.of.slot});
  }
  static std::string print(const GatherMatrices& op, const model::Model& model) { return matrices_text(op.of, model); }
  static Op parse(Line& line, std::string_view) { return GatherMatrices{parse_matrices(line)}; }
};

template <>
struct Description<Orthogonalize> {
  static constexpr Names<1> names{"orthogonalize"};
  static Lane lane(const Orthogonalize& op) { return op.of.beside ? Lane::optimizer : Lane::compute; }
  static void effects(const Orthogonalize& op, Effects& on) {
    on.read(resource::Norm{});
    if (op.in_place)
      on.update(resource::MatrixPieces{op.of.slot});
    else
      on.update(resource::OwnedMatrices{op.of.slot});
  }
  static std::string print(const Orthogonalize& op, const model::Model& model) {
    return matrices_text(op.of, model) + (op.in_place ? " in place" : "");
  }
  static Op parse(Line& line, std::string_view) {
    const Matrices of = parse_matrices(line);
    return Orthogonalize{of, line.in_place()};
  }
};

template <>
struct Description<ScatterMatrices> {
  static constexpr Names<1> names{"scatter_matrices"};
  static Lane lane(const ScatterMatrices&) { return Lane::reduce; }
  static void effects(const ScatterMatrices& op, Effects& on) {
    on.read(resource::Norm{});
    on.read(resource::OwnedMatrices{op.of.slot});
    on.write(resource::MatrixPieces{op.of.slot});
  }
  static std::string print(const ScatterMatrices& op, const model::Model& model) { return matrices_text(op.of, model); }
  static Op parse(Line& line, std::string_view) { return ScatterMatrices{parse_matrices(line)}; }
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

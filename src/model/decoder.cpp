// SPDX-License-Identifier: Apache-2.0
// The one builder of models: an architecture's tables and the run file's sizes.
#include "trireme/model/decoder.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "model/sizes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/model/architecture.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model {

namespace {

/// Standard deviations of first values.
struct Stds {
  double plain;
  double residual;  ///< of the projections that write to the residual stream
};

Stds stds_of(const config::Model& config) {
  const double depth = std::sqrt(2.0 * static_cast<double>(config.layers));
  const double scale = config.init == config::Init::depth_scaled ? 1.0 / depth : 1.0;
  return {.plain = config.init_std, .residual = config.init_std * scale};
}

/// A parameter without its name.
Parameter parameter_of(Role role, const Sizes& s, Stds stds) {
  const auto ones = [&](std::int64_t size) {
    return Parameter{.name = {}, .role = role, .shape = {size}, .filling = Filling::ones, .std = 0};
  };
  const auto zeros = [&](std::int64_t size) {
    return Parameter{.name = {}, .role = role, .shape = {size}, .filling = Filling::zeros, .std = 0};
  };
  const auto matrix = [&](std::int64_t out, std::int64_t in, double std) {
    return Parameter{.name = {}, .role = role, .shape = {out, in}, .filling = Filling::normal, .std = std};
  };
  const auto norm = [&](std::int64_t size) {
    return s.decoder.norm == NormKind::rms_plus_one ? zeros(size) : ones(size);
  };
  const std::int64_t q_rows = s.heads * s.head_dim, kv_rows = s.kv_heads * s.head_dim;
  switch (role) {
    case Role::embedding:
    case Role::head: return matrix(s.vocab, s.hidden, stds.plain);
    case Role::positions: return matrix(s.positions, s.hidden, stds.plain);
    case Role::attention_norm:
    case Role::attention_post_norm:
    case Role::mlp_norm:
    case Role::mlp_post_norm:
    case Role::final_norm: return norm(s.hidden);
    case Role::attention_norm_bias:
    case Role::mlp_norm_bias:
    case Role::final_norm_bias:
    case Role::o_bias:
    case Role::down_bias: return zeros(s.hidden);
    case Role::q: return matrix(q_rows, s.hidden, stds.plain);
    case Role::k:
    case Role::v: return matrix(kv_rows, s.hidden, stds.plain);
    case Role::qkv: return matrix(q_rows + 2 * kv_rows, s.hidden, stds.plain);
    case Role::q_bias: return zeros(q_rows);
    case Role::k_bias:
    case Role::v_bias: return zeros(kv_rows);
    case Role::qkv_bias: return zeros(q_rows + 2 * kv_rows);
    case Role::q_norm: return norm(s.decoder.qk_norm == QkNorm::head ? s.head_dim : q_rows);
    case Role::k_norm: return norm(s.decoder.qk_norm == QkNorm::head ? s.head_dim : kv_rows);
    case Role::q_a: return matrix(s.decoder.latent->q_rank, s.hidden, stds.plain);
    case Role::q_a_norm: return norm(s.decoder.latent->q_rank);
    case Role::q_b: return matrix(q_rows, s.decoder.latent->q_rank, stds.plain);
    case Role::kv_a: return matrix(s.decoder.latent->kv_rank + s.decoder.latent->rope, s.hidden, stds.plain);
    case Role::kv_a_norm: return norm(s.decoder.latent->kv_rank);
    case Role::kv_b: return matrix(s.heads * s.decoder.latent->expanded(), s.decoder.latent->kv_rank, stds.plain);
    case Role::o: return matrix(s.hidden, s.heads * s.value_dim(), stds.residual);
    case Role::gate:
    case Role::up: return matrix(s.intermediate, s.hidden, stds.plain);
    case Role::gate_bias:
    case Role::up_bias: return zeros(s.intermediate);
    case Role::down: return matrix(s.hidden, s.intermediate, stds.residual);
    case Role::router: return matrix(s.decoder.experts->count, s.hidden, stds.plain);
    case Role::router_bias: return zeros(s.decoder.experts->count);
    case Role::shared_weight: return matrix(1, s.hidden, stds.plain);
    case Role::shared_gate:
    case Role::shared_up: return matrix(s.decoder.experts->shared_size, s.hidden, stds.plain);
    case Role::shared_down: return matrix(s.hidden, s.decoder.experts->shared_size, stds.residual);
    case Role::expert_gate:
    case Role::expert_up: return matrix(s.decoder.experts->size, s.hidden, stds.plain);
    case Role::expert_down: return matrix(s.hidden, s.decoder.experts->size, stds.residual);
  }
  throw BugError("a parameter has no role");
}

class Builder {
 public:
  Builder(const config::Model& config, const Architecture& architecture)
      : architecture_(architecture), stds_(stds_of(config)) {
    const Sizes sizes = completed_sizes(config, decoder_of(config));
    model_.architecture = architecture.name;
    model_.config = config;
    model_.config.kv_heads = sizes.kv_heads;
    model_.config.head_dim = sizes.head_dim;
    if (architecture_.expresses(&config::Model::expert_size)) model_.config.expert_size = sizes.decoder.experts->size;
    model_.sizes = model_.held = sizes;
  }

  Model build() && {
    add_embedding();
    for (std::int64_t layer = 0; layer < model_.sizes.layers; ++layer) add_layer(layer);
    add_head();
    return std::move(model_);
  }

 private:
  static constexpr ParamBlock tokens{0}, positions{1};

  /// expert: whose it is, of the parameters that every expert has.
  [[nodiscard]] Parameter parameter(Role role, std::int64_t layer, std::int64_t expert) const {
    const NameRow& row = architecture_.name_of(role);
    Parameter made = parameter_of(role, model_.sizes, stds_);
    made.name = fmt::format(fmt::runtime(row.tensor), layer, expert);
    made.transposed_in_files = row.transposed;
    if (!row.joint.empty()) made.joint_tensor = fmt::format(fmt::runtime(row.joint), layer);
    return made;
  }

  /// A stage whose parameters are new ones of `block`.
  [[nodiscard]] Stage stage(std::string name, StageKind kind, ParamBlock block, ParameterBlock& parameters,
                            std::int64_t layer = 0) const {
    Stage made{.name = std::move(name), .kind = kind, .parameters = {}};
    std::map<Role, std::int64_t> so_far;
    for (const Role role : roles_of(kind, model_.sizes.decoder)) {
      made.parameters.push_back({.block = block, .index = static_cast<int>(parameters.parameters.size())});
      parameters.parameters.push_back(parameter(role, layer, so_far[role]++));
    }
    number_joint_rows(parameters);
    return made;
  }

  /// Sets the first row of each parameter in a tensor that several share in files.
  static void number_joint_rows(ParameterBlock& block) {
    std::map<std::string, std::int64_t> rows;
    for (Parameter& p : block.parameters)
      if (!p.joint_tensor.empty())
        p.rows_before = std::exchange(rows[p.joint_tensor], rows[p.joint_tensor] + p.shape[0]);
    for (Parameter& p : block.parameters)
      if (!p.joint_tensor.empty()) p.joint_rows = rows[p.joint_tensor];
  }

  void add_embedding() {
    const bool learned = model_.sizes.decoder.learned_positions;
    ComputeBlock block{.name = "embedding", .stages = {}, .reads = {tokens}};
    ParameterBlock table{.name = "embedding", .parameters = {}, .backward_reads = model_.sizes.tied};
    block.stages.push_back(stage(learned ? "tokens" : "embedding", StageKind::embedding, tokens, table));
    model_.parameter_blocks.push_back(std::move(table));
    if (learned) {
      ParameterBlock rows{.name = "positions", .parameters = {}, .backward_reads = false};
      block.stages.push_back(stage("positions", StageKind::positions, positions, rows));
      block.reads.push_back(positions);
      model_.parameter_blocks.push_back(std::move(rows));
    }
    model_.compute_blocks.push_back(std::move(block));
  }

  void add_layer(std::int64_t layer) {
    const ParamBlock ref{model_.param_blocks()};
    ParameterBlock parameters{.name = fmt::format("b{}", layer), .parameters = {}};
    ComputeBlock block{.name = parameters.name, .stages = {}, .reads = {ref}, .layer = static_cast<int>(layer)};
    block.stages.push_back(stage("attention", StageKind::attention, ref, parameters, layer));
    block.stages.back().window = window_of(model_.config, layer);
    block.stages.back().rotates = rotates(model_.config, layer);
    if (const auto& experts = model_.sizes.decoder.experts; experts && layer >= experts->dense_layers)
      block.stages.push_back(stage("moe", StageKind::moe, ref, parameters, layer));
    else
      block.stages.push_back(stage("mlp", StageKind::mlp, ref, parameters, layer));
    model_.parameter_blocks.push_back(std::move(parameters));
    model_.compute_blocks.push_back(std::move(block));
  }

  void add_head() {
    const ParamBlock ref{model_.param_blocks()};
    ParameterBlock parameters{.name = "head", .parameters = {}};
    ComputeBlock block{.name = "head", .stages = {}, .reads = {ref}};
    block.stages.push_back(stage("head", StageKind::head, ref, parameters));
    if (model_.sizes.tied) {
      parameters.parameters.pop_back();
      block.stages.back().parameters.back() = {.block = tokens, .index = 0};
      block.reads.push_back(tokens);
    }
    model_.parameter_blocks.push_back(std::move(parameters));
    model_.compute_blocks.push_back(std::move(block));
  }

  const Architecture& architecture_;
  Stds stds_;
  Model model_{};
};

/// Appends those of `roles` that are there.
struct Given {
  bool there;
  std::vector<Role> roles;
};
std::vector<Role> given(std::initializer_list<Given> groups) {
  std::vector<Role> list;
  for (const Given& group : groups)
    if (group.there) list.insert(list.end(), group.roles.begin(), group.roles.end());
  return list;
}

}  // namespace

std::vector<Role> roles_of(StageKind kind, const Decoder& d) {
  using enum Role;
  const bool layer_norm = d.norm == NormKind::layer;
  const bool latent = d.latent.has_value(), q_latent = latent && d.latent->q_rank > 0;
  std::vector<Role> projects = given({{q_latent, {q_a}},  // with kv_a, as one product reads them
                                      {latent && !q_latent, {q}},
                                      {latent, {kv_a}},
                                      {q_latent, {q_a_norm}},
                                      {latent, {kv_a_norm}},
                                      {q_latent, {q_b}},
                                      {!d.joint_qkv && !latent, {q, k, v}},
                                      {!d.joint_qkv && d.qkv_bias, {q_bias, k_bias, v_bias}},
                                      {d.joint_qkv, {qkv}},
                                      {d.joint_qkv && d.qkv_bias, {Role::qkv_bias}},
                                      {d.qk_norm == QkNorm::head, {q_norm, k_norm}}});
  std::vector<Role> norms = given({{d.qk_norm == QkNorm::width, {q_norm, k_norm}}});
  std::vector<Role> attends = given({{latent, {kv_b}}, {true, {o}}, {d.o_bias, {Role::o_bias}}});
  std::vector<Role> feeds = given({{d.gated(), {gate}},
                                   {true, {up}},
                                   {d.gated() && d.mlp_bias, {gate_bias}},
                                   {d.mlp_bias, {up_bias}},
                                   {true, {down}},
                                   {d.mlp_bias, {down_bias}}});
  switch (kind) {
    case StageKind::embedding: return {embedding};
    case StageKind::positions: return {positions};
    case StageKind::attention:
      return given({{d.pre_norm, {attention_norm}},
                    {d.pre_norm && layer_norm, {attention_norm_bias}},
                    {true, projects},
                    {true, norms},
                    {true, attends},
                    {d.post_norm, {attention_post_norm}}});
    case StageKind::mlp:
      return given({{d.pre_norm, {mlp_norm}},
                    {d.pre_norm && layer_norm, {mlp_norm_bias}},
                    {true, feeds},
                    {d.post_norm, {mlp_post_norm}}});
    case StageKind::head: return given({{true, {final_norm}}, {layer_norm, {final_norm_bias}}, {true, {head}}});
    case StageKind::norm:
    case StageKind::input:
    case StageKind::core_attention:
    case StageKind::post_norm: return {};
    case StageKind::attention_branch: return given({{true, projects}, {true, norms}, {true, attends}});
    case StageKind::mlp_branch: return feeds;
    case StageKind::projection: return projects;
    case StageKind::qk_norm: return norms;
    case StageKind::attend:
    case StageKind::output: return attends;
    case StageKind::logits: return {head};
    case StageKind::moe: {
      // gate and up of an expert side by side, as one product reads them; every expert's down after them.
      std::vector<Role> roles =
          given({{d.pre_norm, {mlp_norm}},
                 {d.pre_norm && layer_norm, {mlp_norm_bias}},
                 {true, {router}},
                 {d.experts->choice_bias, {router_bias}},
                 {d.experts->shared == SharedExperts::gated, {shared_weight}},
                 {d.experts->shared != SharedExperts::none, {shared_gate, shared_up, shared_down}}});
      for (std::int64_t e = 0; e < d.experts->count; ++e) roles.insert(roles.end(), {expert_gate, expert_up});
      roles.insert(roles.end(), static_cast<std::size_t>(d.experts->count), expert_down);
      return roles;
    }
    case StageKind::route: {
      std::vector<Role> roles = roles_of(StageKind::moe, d);
      roles.resize(roles.size() - static_cast<std::size_t>(3 * d.experts->count));
      return roles;
    }
    case StageKind::experts:  // those of one expert: each rank has a separate list
      return {expert_gate, expert_up, expert_down};
    case StageKind::merge: return {};
  }
  throw BugError("roles_of: unknown kind of stage");
}

Model build(const config::Model& config) { return Builder(config, architecture(config.architecture)).build(); }

}  // namespace trireme::model

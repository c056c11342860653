// SPDX-License-Identifier: Apache-2.0
#include "support/random_runs.hpp"

#include <algorithm>
#include <optional>

namespace trireme::test {
namespace {

std::int64_t up(std::int64_t size, std::int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

config::Model draw_model(Draw& draw) {
  config::Model model = {.vocab_size = 257, .norm_eps = 1e-4, .rope_theta = 500};
  model.hidden_size = draw.between(40, 90);
  model.intermediate_size = draw.between(30, 130);
  model.layers = draw.between(1, 3);
  model.heads = draw.of<std::int64_t>({2, 3, 4, 6});
  model.kv_heads = draw.divisor_of(model.heads, model.heads);
  model.head_dim = 2 * draw.between(3, 9);
  model.tie_embeddings = draw.coin();
  if (draw.coin()) model.rope_scaling = config::RopeScaling{.factor = 4, .original_max_position_embeddings = 16};
  return model;
}

/// Sizes that the tensor axis can share.
void draw_tensor(Draw& draw, config::RunConfig& config, int ranks) {
  config::Model& model = config.model;
  const bool shared = draw.coin();
  const std::int64_t tensor = shared ? draw.divisor_of(ranks, 4) : 1;
  config.mesh.tensor = tensor;
  model.heads = up(model.heads, tensor);
  model.intermediate_size = up(model.intermediate_size, tensor);
  do model.kv_heads = draw.divisor_of(model.heads, model.heads);
  while (model.kv_heads % tensor != 0 && tensor % model.kv_heads != 0);
}

/// Experts, how their router chooses, and experts of every token.
void draw_experts(Draw& draw, config::Model& model, const model::Architecture& family) {
  using M = config::Model;
  if (!family.decoder.experts) return;
  model.experts = draw.between(1, 9);
  if (family.expresses(&M::router_groups) && draw.coin()) {
    const std::int64_t size = draw.between(2, 3);
    model.router_groups = draw.between(2, 3);
    model.router_groups_kept = draw.between(1, model.router_groups);
    model.experts = model.router_groups * size;
    model.experts_per_token = draw.between(1, model.router_groups_kept * size);
  } else {
    model.experts_per_token = draw.between(1, model.experts);
  }
  if (family.expresses(&M::expert_size)) model.expert_size = draw.between(0, 40);
  if (family.expresses(&M::router_normalize)) model.router_normalize = draw.coin();
  if (family.expresses(&M::router_scale)) model.router_scale = draw.of({1.0, 1.8});
  if (family.expresses(&M::qk_norm)) model.qk_norm = draw.coin();
  if (family.has_dense_layers()) model.dense_layers = draw.between(0, model.layers);
  if (family.decoder.experts->shared == model::SharedExperts::gated) model.shared_size = draw.between(1, 50);
  if (family.decoder.experts->shared == model::SharedExperts::plain)
    model.shared_size = draw.between(1, 2) * (model.expert_size > 0 ? model.expert_size : model.intermediate_size);
}

/// Sizes of latent attention, values wider or narrower than keys.
void draw_latent(Draw& draw, config::Model& model) {
  model.q_rank = draw.coin() ? draw.between(5, 30) : 0;
  model.kv_rank = draw.between(4, 24);
  model.nope_dim = draw.between(2, 9);
  model.rope_dim = 2 * draw.between(2, 5);
  model.value_dim = draw.between(3, 14);
  model.rope_interleave = draw.coin();
  model.kv_heads = model.heads;
  model.head_dim = model.nope_dim + model.rope_dim;
  if (model.rope_scaling && model.rope_scaling->type == config::RopeType::yarn)
    model.rope_scaling->mscale_all_dim = draw.of({0.0, 0.707, 1.0});
}

/// Options of the blocks of some families, each where the family has it, drawn at random; and sizes that it requires,
/// which follow from heads and head_dim.
void draw_options(Draw& draw, config::Model& model, const model::Architecture& family) {
  using M = config::Model;
  if (family.expresses(&M::partial_rotary_factor)) {
    model.head_dim = (model.head_dim + 3) / 4 * 4;
    model.partial_rotary_factor = draw.of<double>({1, 0.5});
  }
  if (family.heads_span_hidden) model.hidden_size = model.heads * model.head_dim;
  if (family.original_length_absent > 0 && model.rope_scaling) {
    const auto pairs = static_cast<std::size_t>(static_cast<double>(model.head_dim) * model.partial_rotary_factor / 2);
    model.rope_scaling = config::RopeScaling{.type = config::RopeType::longrope,
                                             .factor = 4,
                                             .original_max_position_embeddings = draw.between(8, 30),
                                             .short_factor = std::vector<double>(pairs, 1.25),
                                             .long_factor = std::vector<double>(pairs, 3.5)};
  }
  if (family.decoder.latent) draw_latent(draw, model);
  if (family.decoder.local_rope) model.rope_local_theta = draw.of<double>({0, 70});
  if (family.expresses(&M::query_pre_attn_scalar)) model.query_pre_attn_scalar = draw.between(0, 20);
  const auto scale = [&](double M::*member, double value) {
    if (family.expresses(member) && draw.coin()) model.*member = value;
  };
  draw_experts(draw, model, family);
  scale(&M::attn_logit_softcapping, 2);
  scale(&M::final_logit_softcapping, 3);
  scale(&M::embedding_multiplier, 4);
  scale(&M::residual_multiplier, 0.4);
  scale(&M::attention_multiplier, 0.3);
  scale(&M::logits_scaling, 0.6);
}

/// The family, with options that it has.
void draw_family(Draw& draw, config::Model& model, const model::Architecture& family) {
  model.architecture = family.name;
  if (family.name == "gpt2") {
    model.hidden_size = up(model.hidden_size, model.heads);
    model.kv_heads = model.head_dim = 0;
    model.positions = draw.between(15, 40);
    model.rope_theta = config::Model{}.rope_theta;
    model.rope_scaling.reset();
    return;
  }
  model.attention_bias = family.expresses(&config::Model::attention_bias) && draw.coin();
  model.mlp_bias = family.expresses(&config::Model::mlp_bias) && draw.coin();
  if (family.skips_rope) model.no_rope_interval = draw.between(0, model.layers + 1);
  using enum config::RopeType;
  if (family.scales_queries)
    model.rope_scaling = config::RopeScaling{.factor = draw.of<double>({1, 4}),
                                             .original_max_position_embeddings = draw.between(2, 8),
                                             .llama_4_scaling_beta = 0.4};
  if (model.rope_scaling)
    model.rope_scaling->type = family.scales_queries ? yarn : draw.of({llama3, linear, yarn, dynamic});
  if (model.rope_scaling && model.rope_scaling->type == dynamic)
    model.rope_scaling->original_max_position_embeddings = draw.between(3, 16);
  draw_options(draw, model, family);
  if (family.windows == model::Windows::none || draw.coin()) return;
  model.sliding_window = draw.between(1, 12);
  if (family.windows != model::Windows::all && draw.coin())
    model.layer_types = draw.of<std::vector<std::string>>(
        {{config::full_attention, config::sliding_attention}, {config::sliding_attention, config::full_attention}});
  if (family.turns_windows_only && !model.layer_types.empty()) model.layers = std::max<std::int64_t>(model.layers, 2);
}

/// Draws a pipeline for some runs, with enough layers, and as many microbatches as its schedule requires.
void draw_pipeline(Draw& draw, config::RunConfig& config, int ranks) {
  using enum config::PipelineKind;
  config.mesh.pipeline = draw.coin() ? draw.divisor_of(ranks, 4) : 1;
  config.pipeline.schedule = draw.of({gpipe, one_f_one_b, interleaved, zb_h1, zbv, dualpipev});
  const bool loops = config.pipeline.schedule == interleaved;
  const bool turns = config.pipeline.schedule == zbv || config.pipeline.schedule == dualpipev;
  const std::int64_t chunks = turns ? 2 : !loops ? 1 : config.mesh.pipeline > 2 ? 2 : draw.between(2, 3);
  if (config.mesh.pipeline == 1) return;
  if (loops) config.pipeline.chunks = chunks;
  config.model.layers = std::max(config.model.layers, config.mesh.pipeline * chunks) + draw.between(0, 1);
}

/// Context ranks for some, and half of these exchange heads if there are enough.
void draw_context(Draw& draw, config::RunConfig& config, const model::Architecture& family, int ranks) {
  config.mesh.context = draw.divisor_of(ranks, 4);
  if (config.mesh.context == 1 || !draw.coin() || family.decoder.latent) return;
  config::Model& model = config.model;
  const std::int64_t parts = config.mesh.context * config.mesh.tensor;
  const auto kv_heads = [&] { return model.kv_heads > 0 ? model.kv_heads : model.heads; };
  const bool free = model.head_dim > 0 && !family.heads_span_hidden;  // nothing else hangs on the number of heads
  if (free && kv_heads() % parts != 0 && kv_heads() % config.mesh.tensor == 0) {
    model.heads *= config.mesh.context;
    model.kv_heads *= config.mesh.context;
  }
  if (model.heads % parts == 0 && kv_heads() % parts == 0) config.context.method = config::ContextMethod::heads;
}

/// Makes sequence lengths divisible: by tensor ranks, too, whose tokens differ for experts.
void fit_context(config::RunConfig& config) {
  const std::int64_t runs =
      (config.mesh.context > 1 ? 2 * config.mesh.context : 1) * (config.model.experts > 0 ? config.mesh.tensor : 1);
  config.data.seq_len = up(config.data.seq_len, runs);
  if (config.model.positions > 0) config.model.positions = up(config.model.positions, runs);
}

/// Expert ranks for some, folded out of `ranks`, and experts that they divide.
void draw_expert_ranks(Draw& draw, config::RunConfig& config, const model::Architecture& family, std::int64_t ranks) {
  config::Model& model = config.model;
  if (!family.decoder.experts || model.dense_layers >= model.layers) return;
  config.mesh.expert = draw.divisor_of(ranks, 8);
  if (config.mesh.expert == 1) return;
  const std::int64_t size = model.experts / model.router_groups;
  model.experts =
      model.router_groups * (model.router_groups % config.mesh.expert == 0 ? size : up(size, config.mesh.expert));
  if (config.sync.reshard_after_forward > 1) config.sync.reshard_after_forward = 0;
  config.mesh.expert_room = draw.of({1.25, 2.0});
}

config::Sync draw_sync(Draw& draw, std::int64_t shard) {
  using enum config::SyncPolicy;
  config::Sync sync;
  sync.policy = draw.of({immediate, deferred, immediate_all});
  sync.reshard_after_forward = draw.of<std::int64_t>({0, 1, draw.divisor_of(shard, shard)});
  sync.reshard_after_backward = draw.coin();
  sync.prefetch_bytes = draw.of<std::optional<Bytes>>(
      {std::nullopt, Bytes{0}, Bytes{draw.between(1, 400'000)}, Bytes{std::int64_t{1} << 40}});
  return sync;
}

config::Memory draw_memory(Draw& draw) {
  using enum config::Recompute;
  config::Memory memory;
  memory.recompute = draw.of({none, selective, block});
  memory.recompute_every = draw.of<std::int64_t>({1, 1, 2});
  memory.activation_offload = draw.coin();
  memory.activation_offload_min_bytes = draw.of({Bytes{0}, Bytes{4096}});
  memory.activation_offload_in_flight = draw.of<std::int64_t>({1, 2});
  memory.offload = draw.of({config::Offload::none, config::Offload::optimizer, config::Offload::parameters});
  memory.offload_fraction = draw.of({1.0, 0.5});
  return memory;
}

}  // namespace

config::RunConfig draw_run(Draw& draw, Draw* axes, const model::Architecture& family, const TokenFiles& files,
                           int ranks, int steps) {
  config::RunConfig config = odd_run(files, steps);
  config.model = draw_model(draw);
  draw_tensor(draw, config, ranks);
  draw_family(draw, config.model, family);
  ranks /= static_cast<int>(config.mesh.tensor);
  if (axes != nullptr) draw_pipeline(*axes, config, ranks);
  ranks /= static_cast<int>(config.mesh.pipeline);
  if (axes != nullptr) draw_context(*axes, config, family, ranks);
  ranks /= static_cast<int>(config.mesh.context);
  config.mesh.replicate = draw.divisor_of(ranks, 3);
  config.sync = draw_sync(draw, ranks / config.mesh.replicate * config.mesh.context);
  const bool own_blocks = config.model.experts > 0 && config.mesh.tensor > 1;  // of experts, which fit no groups
  if (own_blocks && config.sync.reshard_after_forward > 1) config.sync.reshard_after_forward = 0;
  if (axes != nullptr)
    draw_expert_ranks(*axes, config, family, ranks / config.mesh.replicate * config.mesh.context * config.mesh.tensor);
  config.memory = draw_memory(draw);
  if (config.mesh.pipeline > 1) config.memory.activation_offload = false;
  config.data.seq_len = draw.between(5, 15);
  fit_context(config);
  config.data.shuffle = draw.coin();
  if (draw.coin()) config.data.ignore_targets = {TokenFiles::silent_token, 20, 21, 22};
  config.data.document_mask = draw.coin();
  if (config.data.document_mask) config.data.document_end = draw.between(0, config.model.vocab_size - 1);
  config.loss.z_loss = draw.of({0.0, 1e-4, 1e-2});
  if (family.decoder.experts && config.model.dense_layers < config.model.layers) {
    config.loss.balance_loss = draw.of({0.0, 1e-2});
    config.loss.router_z_loss = draw.of({0.0, 1e-3});
    if (family.decoder.experts->choice_bias) config.loss.balance_bias_rate = draw.of({0.0, 1e-2});
  }
  // Enough rows that no gradient is mostly rounding: else fp32 itself, not the job, decides where its update goes.
  const std::int64_t drawn = draw.of<std::int64_t>({1, 3, 4}), p = config.mesh.pipeline;
  const bool in_groups = p > 1 && config.pipeline.schedule == config::PipelineKind::interleaved;
  const bool many = p > 1 && config.pipeline.schedule == config::PipelineKind::dualpipev;
  const std::int64_t microbatch_rows = ranks * (in_groups ? (drawn + p - 1) / p * p
                                                : many    ? std::max(drawn, 2 * p)
                                                          : drawn);
  config.batch.micro = (24 + microbatch_rows - 1) / microbatch_rows;
  config.batch.global = config.batch.micro * microbatch_rows;
  if (config.mesh.tensor > 1)
    config.mesh.sequence_parallel =
        (draw.coin() || config.model.experts > 0) &&
        config.batch.micro * config.data.seq_len / config.mesh.context % config.mesh.tensor == 0;
  config.loss.chunk_tokens = draw.of<std::int64_t>({0, 0, 1, 7, 64});
  config.data.prefetch_batches = draw.between(1, 3);
  using enum config::Reduce;
  config.precision.reduce = draw.of({fp32, fp32, fp32, fp32, bf16_wire, bf16});
  config.optimizer.lr = 5e-4;
  config.optimizer.eps = 1e-6;  // suppresses steps by gradients that are only rounding
  config.optimizer.clip_norm = draw.of({0.0, 1.0});
  config.lr.schedule = draw.of({config::LrSchedule::cosine, config::LrSchedule::linear, config::LrSchedule::constant});
  return config;
}

void draw_silence(Draw& draw, config::RunConfig& config, const TokenFiles& files) {
  if (draw.coin()) return;
  const std::int64_t steps = config.train.steps, batch = config.batch.global;
  std::vector<bool> silent(static_cast<std::size_t>(steps * batch));
  for (std::int64_t streaks = draw.between(1, 3); streaks > 0; --streaks) {
    const std::int64_t first = draw.between(0, steps - 1), end = std::min(steps, first + draw.between(1, 3));
    std::fill(silent.begin() + first * batch, silent.begin() + end * batch, true);
  }
  for (std::int64_t some = draw.between(0, batch); some > 0; --some)
    silent[static_cast<std::size_t>(draw.between(0, steps * batch - 1))] = true;
  config.data.shuffle = false;
  config.data.train = files.sources_with_silence(steps * batch, config.data.seq_len, [&](std::int64_t sample) {
    return silent[static_cast<std::size_t>(sample)];
  });
}

void draw_tokens(Draw& draw, config::Data& data, const TokenFiles& files) {
  switch (draw.between(0, 3)) {
    case 0: return;
    case 1: data.train = files.sources_with_mask(); return;
    default: break;
  }
  data.train = files.sources_with_documents(draw.coin());
  data.document_mask = draw.between(0, 3) > 0;
  if (draw.coin()) {
    data.train = files.sources_to_pack(draw.coin());
    data.packing = config::Packing::best_fit;
    data.document_mask = true;
    return;
  }
  // A token of the vocabulary, which ends the documents of the other file alone.
  if (data.document_mask && !data.document_end) data.document_end = draw.between(0, 100);
}

void draw_validation(Draw& draw, config::RunConfig& config, const TokenFiles& files) {
  switch (draw.between(0, 3)) {
    case 0: config.data.validation = files.sources_with_mask(); break;
    case 1: config.data.validation = files.sources_with_documents(true); break;
    case 2: config.data.validation = files.sources_with_documents(false); break;
    default: break;
  }
  if (config.data.packing == config::Packing::best_fit)  // of validation too, whose document ends have to be known
    config.data.validation = files.sources_to_pack(draw.coin());
  const bool named = draw.coin();
  if (named) config.data.validation.front().set = "first", config.data.validation.back().set = "second";
  if (config.train.eval_every == 0) return;
  if (config.train.eval_every > 3 && draw.coin()) config.train.eval_steps = 0;
  config.checkpoint.keep = draw.between(1, 3);
  config.checkpoint.keep_best = draw.of<std::optional<std::string>>({std::nullopt, "", named ? "second" : ""});
}

void draw_program(Draw& draw, config::RunConfig& config, const TokenFiles& files, const std::string& directory,
                  std::int64_t dp) {
  const std::int64_t steps = config.train.steps;
  config.run.output = directory + "/out";
  config.run.export_when = draw.of({config::Export::never, config::Export::end, config::Export::every_checkpoint});
  config.model.from = directory + "/weights";
  config.data.validation = files.sources();
  config.lr.end_step = steps;
  config.train.eval_every = draw.of<std::int64_t>({0, 3, 7});
  config.train.eval_steps = draw.between(1, 2);
  config.train.replica_check_every = draw.of<std::int64_t>({0, 1, 3});
  config.checkpoint.directory = config.run.output + "/checkpoints";
  config.checkpoint.every = draw.of<std::int64_t>({0, 4, 9});
  config.checkpoint.async = draw.coin();
  config.checkpoint.ranks_per_file = dp % 2 == 0 ? draw.of<std::int64_t>({1, 1, 2}) : 1;
  if (draw.coin()) config.metrics.trace_steps = {draw.between(1, 3), draw.between(4, steps)};
  config.metrics.memory_snapshot = draw.coin();
  config.metrics.tensorboard = draw.coin();
  config.comm.lane_threads = draw.of<std::optional<bool>>({std::nullopt, true, true, false});
  config.comm.backend = draw.of({config::Backend::automatic, config::Backend::mpi});
  config.comm.timeout_seconds = 600;
  config.device.type = config::DeviceType::cpu;
  config.device.threads = draw.between(1, 2);
}

}  // namespace trireme::test

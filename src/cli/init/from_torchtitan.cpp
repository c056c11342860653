// SPDX-License-Identifier: Apache-2.0
#include "cli/init/from_torchtitan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/init/source_fields.hpp"
#include "trireme/base/text.hpp"

namespace trireme::cli {
namespace {

using Names = SourceFields::Names;

/// Fields of `JobConfig` (2025) and `Trainer.Config` (2026) that no key stands for.
constexpr auto unmatched = std::to_array<WithoutCounterpart>({
    {"job.config_file", "the file itself"},
    {"job.description", "free text; run.name is the name in logs"},
    {"job.print_*", "trireme plan prints the configuration"},
    {"job.use_for_integration_test", "of TorchTitan's tests"},
    {"job.save_config_*", "run.output holds run.toml, the effective configuration"},
    {"debug.print_config", "trireme plan prints the configuration"},
    {"debug.save_config_file", "run.output holds run.toml, the effective configuration"},
    {"job.custom_config_module", "Python is not loaded"},
    {"experimental.*", "Python is not loaded"},
    {"override.*", "Python is not loaded"},
    {"profiling.*", "metrics.trace_steps and metrics.memory_snapshot choose steps of the run"},
    {"profiler.*", "metrics.trace_steps and metrics.memory_snapshot choose steps of the run"},
    {"metrics.log_freq", "trireme train --log-every N; metrics.jsonl has every step (metrics.every)"},
    {"metrics.disable_color_printing", "NO_COLOR=1"},
    {"metrics.save_tb_folder", "always <run.output>/tensorboard"},
    {"metrics.save_for_all_ranks", "rank 0 writes the metrics of all ranks"},
    {"metrics.enable_wandb", "trireme export-metrics --to wandb, after the run"},
    {"model.print_after_conversion", "trireme plan prints the model"},
    {"model.norm_type", "the family's"},
    {"model_spec.model.*", "the model is that of its name and flavor"},
    {"model_spec.*", "Python functions"},
    {"tokenizer.*", "the tokenizer of data.tokenizer"},
    {"optimizer.implementation", "one implementation, in one pass over memory"},
    {"optimizer.early_step_in_backward", "the update of a block begins with the clipped norm"},
    {"optimizer.optimizer_factory_kwargs_by_name", "AdamW alone"},
    {"training.dataset*", "--data: token files of trireme tokenize"},
    {"training.dataloader.*", "a reader thread; data.prefetch_batches"},
    {"dataloader.*", "--data: token files of trireme tokenize; data.prefetch_batches"},
    {"validation.dataset*", "FILE-validation of trireme tokenize --validation"},
    {"validation.dataloader.*", "a reader thread"},
    {"validation.seq_len", "evaluations use data.seq_len"},
    {"validator.dataloader.*", "FILE-validation of trireme tokenize --validation"},
    {"training.gc_*", "no Python"},
    {"training.disable_cuda_graphs", "device.cuda_graphs is off unless it is set"},
    {"training.debug_moe_force_load_balance", "routers are never overridden"},
    {"debug.moe_force_load_balance", "routers are never overridden"},
    {"debug.deterministic_warn_only", "what is not deterministic is refused"},
    {"debug.detect_anomaly", "no autograd; steps with values that are not finite are skipped and reported"},
    {"debug.batch_invariant", "sums have a fixed order on every mesh"},
    {"debug.spmd_typechecking", "schedules are verified before a run"},
    {"debug.enable_structured_logging", "TRIREME_LOG=debug; hang reports are always written"},
    {"parallelism.disable_loss_parallel", "the loss is vocabulary-parallel with mesh.tensor"},
    {"parallelism.enable_async_tensor_parallel", "exchanges overlap with products without a switch"},
    {"parallelism.enable_compiled_autograd", "no autograd"},
    {"parallelism.context_parallel_load_balancer", "sequences are divided in balance (headtail)"},
    {"parallelism.context_parallel_ptrr_mask_key", "sequences are divided in balance (headtail)"},
    {"parallelism.module_fqns_per_model_part", "pipeline.layers: the layers of each chunk; default: by FLOPs"},
    {"parallelism.pipeline_parallel_split_points", "pipeline.layers: the layers of each chunk; default: by FLOPs"},
    {"parallelism.pipeline_parallel_*_less_layers", "layers are divided by FLOPs, embedding and head included"},
    {"parallelism.pipeline_parallel_layers_per_stage", "pipeline.chunks and pipeline.layers"},
    {"parallelism.pipeline_parallel_schedule_csv", "schedules are built from pipeline.schedule"},
    {"parallelism.pipeline_parallel_expert_parallel_overlap", "not overlapped with pipeline transfers"},
    {"parallelism.expert_tensor_parallel_degree", "the tensor degree of experts is 1"},
    {"parallelism.expert_parallel_comm_backend", "comm.backend"},
    {"parallelism.hybridep_non_blocking_expert_capacity_factor", "no token is dropped"},
    {"parallelism.enable_fsdp_symm_mem", "comm.nccl_windows = true"},
    {"parallelism.spmd_backend", "layouts are tables, not DTensor"},
    {"parallelism.full_dtensor", "layouts are tables, not DTensor"},
    {"checkpoint.enable_first_step_checkpoint", "checkpoint directories are tried before step 1"},
    {"checkpoint.create_seed_checkpoint", "the first parameters are the same on every mesh"},
    {"checkpoint.last_save_model_only", "checkpoint.at_end keeps the whole state; run.export writes weights alone"},
    {"checkpoint.last_save_model_weights_only", "checkpoint.at_end keeps the whole state; run.export writes weights"},
    {"checkpoint.model_weights_only", "checkpoint.at_end keeps the whole state; run.export writes weights alone"},
    {"checkpoint.export_dtype", "exports are in the dtype of trireme export --dtype"},
    {"checkpoint.exclude_from_loading", "model.from takes weights alone"},
    {"checkpoint.load_only", "checkpoint.every = 0 and checkpoint.at_end = false"},
    {"checkpoint.enable_ft_dataloader_checkpoints", "no TorchFT"},
    {"fault_tolerance.*", "no TorchFT; a failed run resumes from its last checkpoint"},
    {"activation_checkpoint.*", "recomputation follows memory.recompute"},
    {"compile.*", "kernels are compiled ahead of time"},
    {"float8.*", "scales are computed for every product, without history; gathers are bf16"},
    {"mx.*", "one kernel"},
    {"quantize.*", "scales are computed for every product, without history; gathers are bf16"},
    {"loss.*", "the cross-entropy; loss.chunk_tokens is chosen"},
    {"comm.mode", "trireme plan needs no GPUs"},
    {"comm.trace_buf_size", "the flight recorder is always on"},
    {"comm.save_traces_*", "hang reports are in run.output"},
    {"memory_estimation.*", "trireme plan"},
});

struct Flavor {
  std::string_view model, flavor;
  std::int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim;
  bool tied = false;
  std::int64_t experts = 0, expert_size = 0;
  double theta = 0;  ///< 0: the family's
};
constexpr auto flavors = std::to_array<Flavor>({
    {"llama3", "debugmodel", 2048, 256, 768, 6, 16, 16, 0},
    {"llama3", "1B", 128256, 2048, 8192, 16, 32, 8, 0, true},
    {"llama3", "3B", 128256, 3072, 8192, 28, 24, 8, 0, true},
    {"llama3", "8B", 128256, 4096, 14336, 32, 32, 8, 0},
    {"llama3", "70B", 128256, 8192, 28672, 80, 64, 8, 0},
    {"llama3", "405B", 128256, 16384, 53248, 126, 128, 8, 0},
    {"qwen3", "debugmodel", 2048, 256, 3072, 8, 16, 8, 128, true},
    {"qwen3", "0.6B", 151936, 1024, 3072, 28, 16, 8, 128, true},
    {"qwen3", "1.7B", 151936, 2048, 6144, 28, 16, 8, 128, true},
    {"qwen3", "4B", 151936, 2560, 9728, 36, 32, 8, 128, true},
    {"qwen3", "8B", 151936, 4096, 12288, 36, 32, 8, 128},
    {"qwen3", "14B", 151936, 5120, 17408, 40, 40, 8, 128},
    {"qwen3", "32B", 151936, 5120, 25600, 64, 64, 8, 128},
    {"qwen3", "debugmodel_moe", 2048, 256, 3072, 8, 16, 8, 128, false, 64, 768},
    {"qwen3", "30B-A3B", 151936, 2048, 6144, 48, 32, 4, 128, false, 128, 768},
    {"qwen3", "235B-A22B", 151936, 4096, 12288, 94, 64, 4, 128, false, 128, 1536, 5e6},
});

config::Model model_of_flavor(const Flavor& f) {
  config::Model model;
  const bool llama = f.model == "llama3";
  model.architecture = llama ? "llama" : f.experts > 0 ? "qwen3_moe" : "qwen3";
  model.vocab_size = f.vocab;
  model.hidden_size = f.hidden;
  model.intermediate_size = f.intermediate;
  model.layers = f.layers;
  model.heads = f.heads;
  model.kv_heads = f.kv_heads;
  model.head_dim = f.head_dim;
  model.norm_eps = llama ? 1e-5 : 1e-6;
  model.rope_theta = f.theta > 0 ? f.theta : llama ? 500000 : 1000000;
  if (llama) model.rope_scaling = config::RopeScaling{};  // Llama 3.1's
  model.tie_embeddings = f.tied;
  model.experts = f.experts;
  model.experts_per_token = f.experts > 0 ? 8 : 0;
  model.expert_size = f.expert_size;
  model.init = config::Init::depth_scaled;
  return model;
}

/// One translation: reads fields and writes keys.
class Translation {
 public:
  Translation(const nlohmann::json& job, const std::string& file, int ranks)
      : fields_(file, job), ranks_(ranks), in_2026_(fields_.has("model_spec.name") || fields_.has("hf_assets_path")) {}

  TranslatedRun finish(bool with_model) {
    attention();
    if (with_model && !fields_.flag({"checkpoint.initial_load_in_hf"}, false)) model();
    mesh();
    batch();
    precision();
    memory();
    optimizer();
    learning_rate();
    validation();
    checkpoint();
    others();
    fields_.raise();
    run_.without_counterpart = fields_.unread(unmatched);
    return std::move(run_);
  }

 private:
  /// Records the field that a key is taken from. note: what differs.
  void reason(const std::string& key, Names names, const std::string& note = "") {
    const std::string_view name = fields_.present(names);
    run_.reasons[key] = fmt::format("{}{}{}{}", fields_.has(name) ? "" : "TorchTitan's default of ", name,
                                    note.empty() ? "" : ": ", note);
  }
  void differs(Names names, const std::string& note) {
    run_.differences.push_back(fmt::format("{}: {}", fields_.present(names), note));
  }

  /// Reads name and flavor of the model, whose ending is the mask of attention.
  void attention() {
    const Names names{"model.name", "model_spec.name"}, flavors{"model.flavor", "model_spec.flavor"};
    name_ = fields_.text(names, "llama3");
    flavor_ = fields_.text(flavors, "debugmodel");
    for (const std::string_view masks : {"_flex_attn", "_varlen_attn", "_flex", "_varlen"})
      if (flavor_.ends_with(masks)) {
        flavor_.resize(flavor_.size() - masks.size());
        run_.config.data.document_mask = true;
        reason("data.document_mask", flavors, "attention within documents (block_causal)");
      }
  }

  void model() {
    const Names names{"model.name", "model_spec.name"};
    const auto* const found = std::ranges::find_if(
        flavors, [&](const Flavor& f) { return name_.starts_with(f.model) && f.flavor == flavor_; });
    if (found == flavors.end()) {
      std::vector<std::string> known;
      for (const Flavor& f : flavors) known.push_back(fmt::format("{} {}", f.model, f.flavor));
      fields_.refuse(fields_.present(names),
                     fmt::format("{} {} is not known here; known are {}. Give the model with --from as well: a "
                                 "config.json, a Hugging Face directory or a name (`trireme models` lists families)",
                                 name_, flavor_, join(known, ", ")));
      return;
    }
    run_.config.model = model_of_flavor(*found);
    const std::string of_flavor = fmt::format("of {} {}", found->model, found->flavor);
    for (const char* key : {"architecture", "vocab_size", "hidden_size", "intermediate_size", "layers", "heads",
                            "kv_heads", "norm_eps", "rope_theta"})
      run_.reasons[std::string("model.") + key] = of_flavor;
    if (run_.config.model.rope_scaling)
      run_.reasons["model.rope_scaling"] = of_flavor + ", since October 2025; remove it for an older TorchTitan";
    run_.reasons["model.tie_embeddings"] = of_flavor;
    run_.reasons["model.init"] =
        "theirs divides by the depth of each layer, has std 1 for embeddings and hidden_size^-0.5 for the head";
    differs(names,
            "weights begin with std model.init_std = 0.02; TorchTitan's embeddings have std 1 and its head "
            "hidden_size^-0.5, truncated");
    check_size("model_spec.model.dim", found->hidden);
    check_size("model_spec.model.vocab_size", found->vocab);
    if (found->experts > 0)
      differs(names,
              "experts are balanced by loss.balance_loss or loss.router_z_loss; TorchTitan's bias of the routers "
              "(load_balance_coeff) is not in this family");
  }

  /// Sizes of a dump that was changed in Python.
  void check_size(std::string_view field, std::int64_t size) {
    const std::int64_t given = fields_.integer({field}, size);
    if (given != size)
      fields_.refuse(field,
                     fmt::format("is {}, but {} in the flavor; give the model with --from as well", given, size));
  }

  void mesh() {
    config::Mesh& mesh = run_.config.mesh;
    const auto degree = [&](std::int64_t& size, const char* key, Names names, std::int64_t fallback) {
      size = fields_.integer(names, fallback);
      reason(std::string("mesh.") + key, names);
    };
    degree(mesh.replicate, "replicate", {"parallelism.data_parallel_replicate_degree"}, 1);
    degree(mesh.shard, "shard", {"parallelism.data_parallel_shard_degree"}, -1);
    degree(mesh.tensor, "tensor", {"parallelism.tensor_parallel_degree"}, 1);
    degree(mesh.context, "context", {"parallelism.context_parallel_degree"}, 1);
    degree(mesh.pipeline, "pipeline", {"parallelism.pipeline_parallel_degree"}, 1);
    degree(mesh.expert, "expert", {"parallelism.expert_parallel_degree"}, 1);
    if (const Names names{"parallelism.enable_sequence_parallel"}; mesh.tensor > 1) {
      mesh.sequence_parallel = fields_.flag(names, true);
      reason("mesh.sequence_parallel", names);
    } else {
      (void)fields_.take(names);
    }
    const Names rotate{"parallelism.context_parallel_rotate_method"};
    if (fields_.text(rotate, "allgather") != "allgather" && mesh.context > 1)
      differs(rotate, "keys and values are all-gathered (context.method = \"gather\"); the results are the same");
    const Names reshard{"parallelism.fsdp_reshard_after_forward"};
    const std::string policy = fields_.text(reshard, "default");
    const bool keeps = policy == "never" || (policy == "default" && mesh.pipeline > 1);
    if (policy != "never" && policy != "default" && policy != "always")
      fields_.refuse(fields_.present(reshard), policy + " is none of default, always and never");
    run_.config.sync.reshard_after_forward = keeps ? 1 : 0;
    reason("sync.reshard_after_forward", reshard, policy);
    run_.reasons["sync.policy"] =
        "reduce-scatter after every microbatch as in TorchTitan, all-reduce over replicas once: the same sums";
    const Names schedule{"parallelism.pipeline_parallel_schedule"};
    const std::string order = fields_.text(schedule, "1F1B");
    if (mesh.pipeline <= 1) return;
    static const std::map<std::string, config::PipelineKind> orders{
        {"1f1b", config::PipelineKind::one_f_one_b},
        {"gpipe", config::PipelineKind::gpipe},
        {"interleaved1f1b", config::PipelineKind::interleaved},
        {"zbvzerobubble", config::PipelineKind::zbv},
        {"dualpipev", config::PipelineKind::dualpipev}};
    const auto known = orders.find(lowercase(order));
    run_.config.pipeline.schedule = known == orders.end() ? config::PipelineKind::interleaved : known->second;
    reason("pipeline.schedule", schedule);
    if (known == orders.end()) differs(schedule, order + " has no counterpart; interleaved comes nearest");
  }

  /// Data-parallel ranks; 0, with a mistake, where the ranks do not fit.
  std::int64_t data_parallel() {
    const config::Mesh& mesh = run_.config.mesh;
    const std::int64_t others = mesh.tensor * mesh.context * mesh.pipeline;
    const std::int64_t fixed = others * mesh.replicate * std::max<std::int64_t>(mesh.shard, 1);
    if (fixed < 1 || ranks_ % fixed != 0 || (mesh.shard > 0 && ranks_ != fixed)) {
      fields_.refuse("parallelism", fmt::format("the degrees need {} {} ranks, but --ranks is {}",
                                                mesh.shard > 0 ? "exactly" : "a multiple of", fixed, ranks_));
      return 0;
    }
    return ranks_ / others;
  }

  void batch() {
    config::RunConfig& config = run_.config;
    const std::int64_t dp = dp_ = data_parallel();
    const Names length{"training.seq_len", "training.max_context_length"};
    const Names tokens{"training.num_tokens_per_microbatch_per_dp_rank"};
    const Names local{"training.local_batch_size", "training.batch_size"};
    const Names global{"training.global_batch_size", "training.num_tokens_per_train_step"};
    const Names split{"parallelism.pipeline_parallel_microbatch_size"}, count{"parallelism.num_pp_microbatches"};
    config.data.seq_len = fields_.integer(length, 2048);
    reason("data.seq_len", length);
    const bool by_tokens =
        fields_.has("training.num_tokens_per_microbatch_per_dp_rank") || fields_.has("training.max_context_length");
    const std::int64_t micro_tokens = fields_.integer(tokens, 16384);
    std::int64_t sequences = fields_.integer(local, 8);
    const std::int64_t microbatch = fields_.integer(split, 1), microbatches = fields_.integer(count, 1);
    std::int64_t step = fields_.integer(global, -1);
    const bool pipelined = config.mesh.pipeline > 1;
    if (config.data.seq_len < 1 || sequences < 1 || micro_tokens < 1 || microbatch < 1 || microbatches < 1) {
      fields_.refuse("training", "sizes of batches and sequences must be positive");
      return;
    }
    if (by_tokens) {
      const std::int64_t seq_len = config.data.seq_len;
      if (micro_tokens % seq_len != 0 || (step > 0 && step % seq_len != 0)) {
        fields_.refuse(*tokens.begin(),
                       fmt::format("{} tokens a microbatch and {} a step are not whole sequences of {} tokens; change "
                                   "training.max_context_length or the tokens",
                                   micro_tokens, step, seq_len));
        return;
      }
      sequences = micro_tokens / seq_len;
      if (step > 0) step /= seq_len;
      config.batch.micro = sequences;
      if (step <= 0) step = sequences * dp * (pipelined ? microbatches : 1);
      reason("batch.micro", tokens, fmt::format("{} tokens", micro_tokens));
    } else {
      config.batch.micro = pipelined ? microbatch : sequences;
      if (step <= 0) step = sequences * dp;
      if (pipelined)
        reason("batch.micro", split);
      else
        reason("batch.micro", local);
    }
    config.batch.global = step;
    evaluated_sequences_ = sequences * dp;
    reason("batch.global", global, fields_.has(fields_.present(global)) ? "" : "microbatch times data-parallel ranks");
    const Names steps{"training.steps"};
    config.train.steps = fields_.integer(steps, 10000);
    reason("train.steps", steps);
  }

  void precision() {
    config::Precision& precision = run_.config.precision;
    const Names param{"training.mixed_precision_param"}, reduce{"training.mixed_precision_reduce"};
    const Names dtype{"training.dtype"};
    precision.compute = fields_.text(param, "bfloat16") == "float32" ? DType::fp32 : DType::bf16;
    reason("precision.compute", param, "masters and moments stay fp32");
    precision.reduce = fields_.text(reduce, "float32") == "bfloat16" ? config::Reduce::bf16 : config::Reduce::fp32;
    reason("precision.reduce", reduce);
    if (const std::string masters = fields_.text(dtype, "float32"); masters != "float32")
      differs(dtype, masters +
                         ": masters, gradients and moments are fp32 here; precision.masters = \"split\" saves 2 "
                         "bytes a parameter");
    fp8();
  }

  void fp8() {
    const Names converters{"model.converters"};
    const Names recipe{"quantize.linear.float8.recipe_name", "quantize.dense.float8.recipe_name", "float8.recipe_name"};
    const Names skipped{"quantize.linear.float8.filter_fqns", "quantize.dense.float8.filter_fqns",
                        "float8.filter_fqns"};
    const Names mx_skipped{"quantize.linear.mx.filter_fqns", "quantize.dense.mx.filter_fqns", "mx.filter_fqns"};
    const std::string name = fields_.text(recipe, "tensorwise");
    const std::vector<std::string> filter = fields_.texts(skipped), mx_filter = fields_.texts(mx_skipped);
    bool scaled = false, mx = false;
    for (const std::string& converter : fields_.texts(converters)) {
      const bool float8 = converter == "float8" || converter == "quantize.linear.float8";
      const bool mxfp8 = converter == "mx" || converter == "quantize.linear.mx";
      if (!float8 && !mxfp8) differs(converters, converter + " has no counterpart");
      scaled = scaled || float8 || mxfp8;
      mx = mx || mxfp8;
    }
    if (!scaled) return;
    config::Precision& precision = run_.config.precision;
    precision.fp8 = mx ? Fp8::mx : name == "tensorwise" ? Fp8::tensorwise : Fp8::rowwise;
    reason("precision.fp8", converters, mx ? "mx" : name + "; weight gradients and gathers are bf16");
    for (const std::string& part : mx ? mx_filter : filter) {
      if (part == "output" || part == "lm_head") continue;  // never in 8 bits
      if (part == "auto_filter_small_kn") {
        differs(skipped, part + " has no counterpart");
        continue;
      }
      precision.fp8_skip.push_back("*" + in_their_names(part) + "*");
    }
    if (!precision.fp8_skip.empty()) reason("precision.fp8_skip", mx ? mx_skipped : skipped);
  }

  /// TorchTitan's names of weights as Hugging Face's.
  static std::string in_their_names(std::string part) {
    constexpr std::array<std::array<std::string_view, 2>, 9> renamed{{{"attention.wq", "self_attn.q_proj"},
                                                                      {"attention.wk", "self_attn.k_proj"},
                                                                      {"attention.wv", "self_attn.v_proj"},
                                                                      {"attention.wo", "self_attn.o_proj"},
                                                                      {"feed_forward.w1", "mlp.gate_proj"},
                                                                      {"feed_forward.w2", "mlp.down_proj"},
                                                                      {"feed_forward.w3", "mlp.up_proj"},
                                                                      {"feed_forward", "mlp"},
                                                                      {"attention", "self_attn"}}};
    for (const auto& [theirs, ours] : renamed)
      if (const std::size_t at = part.find(theirs); at != std::string::npos)
        return part.replace(at, theirs.size(), ours);
    return part;
  }

  void memory() {
    config::Memory& memory = run_.config.memory;
    const Names offload{"training.enable_cpu_offload"};
    if (fields_.flag(offload, false)) memory.offload = config::Offload::parameters;
    reason("memory.offload", offload);
    const Names mode{"activation_checkpoint.mode"}, option{"activation_checkpoint.selective_ac_option"};
    const std::string every = fields_.text(option, "2");
    std::string kind = fields_.text(mode, in_2026_ ? "" : "selective");
    if (kind.empty())  // the class of a dump shows in its fields
      kind = fields_.has("activation_checkpoint.memory_budget") ? "memory_budget"
             : fields_.has("activation_checkpoint.preserve_rng_state") &&
                     !fields_.has("activation_checkpoint.force_recompute_mm_shapes_by_fqns") &&
                     !fields_.has("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns")
                 ? "full"
             : fields_.has("activation_checkpoint") ? "none"
                                                    : "op";
    (void)fields_.take({"activation_checkpoint"});
    const bool by_layer =
        kind == "selective" && std::ranges::all_of(every, [](char c) { return c >= '0' && c <= '9'; });
    if (kind == "none") {
      memory.recompute = config::Recompute::none;
    } else if (kind == "full") {
      memory.recompute = config::Recompute::block;
    } else if (by_layer && !every.empty() && every.size() < 6) {
      memory.recompute = config::Recompute::block;
      memory.recompute_every = std::max<std::int64_t>(1, std::stoll(every));
      reason("memory.recompute_every", option);
    } else {
      memory.recompute = config::Recompute::selective;
    }
    reason("memory.recompute", mode, kind);
    if (kind == "memory_budget" || kind == "op" || (kind == "selective" && !by_layer))
      differs(mode,
              "memory.recompute = \"selective\" recomputes norms and SwiGLU; products are kept. The results are "
              "the same");
  }

  void optimizer() {
    config::Optimizer& optimizer = run_.config.optimizer;
    const Names name{"optimizer.name"}, groups{"optimizer.param_groups"};
    std::string kind = fields_.text(name, "AdamW");
    optimizer.lr = 8e-4;
    const nlohmann::json& listed = fields_.take(groups);
    if (listed.is_array() && !listed.empty()) {
      kind = optimizer_of_groups(listed, optimizer);
    } else {
      const Names lr{"optimizer.lr"}, beta1{"optimizer.beta1"}, beta2{"optimizer.beta2"}, eps{"optimizer.eps"};
      const Names decay{"optimizer.weight_decay"};
      optimizer.lr = fields_.number(lr, 8e-4);
      optimizer.beta1 = fields_.number(beta1, 0.9);
      optimizer.beta2 = fields_.number(beta2, 0.95);
      optimizer.eps = fields_.number(eps, 1e-8);
      optimizer.weight_decay = fields_.number(decay, 0.1);
      reason("optimizer.lr", lr);
      reason("optimizer.beta1", beta1);
      reason("optimizer.beta2", beta2);
      reason("optimizer.eps", eps);
      reason("optimizer.weight_decay", decay);
    }
    if (kind != "AdamW" && !(kind == "Adam" && optimizer.weight_decay == 0))
      fields_.refuse(fields_.present(groups),
                     kind + (kind == "Adam" ? " with weight_decay has no counterpart; AdamW decays decoupled"
                                            : " has no counterpart; there is AdamW"));
    optimizer.no_decay.clear();
    run_.reasons["optimizer.no_decay"] =
        "TorchTitan decays all parameters; without this key norms and biases have no decay";
    const Names norm{"training.max_norm"};
    optimizer.clip_norm = fields_.number(norm, 1);
    reason("optimizer.clip_norm", norm);
  }

  /// The optimizer of the group that every parameter fits (`.*`).
  std::string optimizer_of_groups(const nlohmann::json& groups, config::Optimizer& optimizer) {
    const Names names{"optimizer.param_groups"};
    const auto text = [](const nlohmann::json& group, const char* key) {
      return group.is_object() && group.contains(key) && group[key].is_string() ? group[key].get<std::string>() : "";
    };
    const auto whole = std::find_if(groups.begin(), groups.end(),
                                    [&](const nlohmann::json& group) { return text(group, "pattern") == ".*"; });
    for (auto group = groups.begin(); group != groups.end(); ++group)
      if (group != whole)
        differs(names, fmt::format("the group {} has no counterpart; optimizer.no_decay takes parameters out of the "
                                   "weight decay",
                                   group->dump()));
    if (whole == groups.end() || !whole->contains("optimizer_kwargs") || !(*whole)["optimizer_kwargs"].is_object()) {
      fields_.refuse(*names.begin(), "there is no group with the pattern .* and optimizer_kwargs");
      return "AdamW";
    }
    const nlohmann::json& values = (*whole)["optimizer_kwargs"];
    const auto number = [&](const char* key, double fallback) {
      return values.contains(key) && values[key].is_number() ? values[key].get<double>() : fallback;
    };
    optimizer.lr = number("lr", 8e-4);
    optimizer.eps = number("eps", 1e-8);
    optimizer.weight_decay = number("weight_decay", 0.1);
    if (values.contains("betas") && values["betas"].is_array() && values["betas"].size() == 2 &&
        values["betas"][0].is_number() && values["betas"][1].is_number()) {
      optimizer.beta1 = values["betas"][0].get<double>();
      optimizer.beta2 = values["betas"][1].get<double>();
    }
    for (const auto& [key, value] : values.items())
      if (key != "lr" && key != "eps" && key != "weight_decay" && key != "betas")
        differs(names, fmt::format("{} = {} has no counterpart", key, value.dump()));
    for (const char* key : {"lr", "beta1", "beta2", "eps", "weight_decay"})
      reason(std::string("optimizer.") + key, names);
    return text(*whole, "optimizer_name");
  }

  void learning_rate() {
    config::Lr& lr = run_.config.lr;
    const Names warmup{"lr_scheduler.warmup_steps", "training.warmup_steps"}, total{"lr_scheduler.total_steps"};
    const Names ratio{"lr_scheduler.decay_ratio"}, type{"lr_scheduler.decay_type"};
    const Names least{"lr_scheduler.min_lr_factor", "lr_scheduler.lr_min"};
    const std::int64_t steps = fields_.integer(total, run_.config.train.steps);
    if (steps != run_.config.train.steps) {
      lr.end_step = steps;
      reason("lr.end_step", total);
    }
    lr.warmup_steps = std::min(fields_.integer(warmup, 200), steps);
    reason("lr.warmup_steps", warmup);
    lr.min_ratio = fields_.number(least, 0);
    reason("lr.min_ratio", least, "here 0.1 without the key");
    const std::string kind = fields_.text(type, "linear");
    std::int64_t decay = steps - lr.warmup_steps;
    const bool stable = !fields_.take(ratio).is_null();
    if (stable)
      decay = std::min<std::int64_t>(decay, std::llrint(fields_.number(ratio, 1) * static_cast<double>(steps)));
    const bool whole = decay == steps - lr.warmup_steps;
    lr.schedule = kind == "cosine" && whole ? config::LrSchedule::cosine
                  : whole                   ? config::LrSchedule::linear
                                            : config::LrSchedule::wsd;
    if (!whole) {
      lr.wsd_decay_steps = decay;
      reason("lr.wsd_decay_steps", ratio);
    }
    reason("lr.schedule", type, whole ? kind : kind + " in the last steps");
    if (kind != "linear" && !(kind == "cosine" && whole))
      differs(type, fmt::format("the decay of {} is linear here", whole ? "the schedule" : "wsd"));
  }

  void validation() {
    const Names enable{"validation.enable", "validator.enable", "validation.enabled"};
    const Names freq{"validation.freq", "validator.freq"}, steps{"validation.steps", "validator.steps"};
    const Names local{"validation.local_batch_size"};
    const std::int64_t every = fields_.integer(freq, 10), batches = fields_.integer(steps, -1);
    const std::int64_t sequences = fields_.integer(local, 0);
    if (!fields_.flag(enable, false)) return;
    run_.validates = true;
    config::Train& train = run_.config.train;
    train.eval_every = every;
    reason("train.eval_every", freq);
    if (batches <= 0 || run_.config.batch.global <= 0) return;
    const std::int64_t each = sequences > 0 ? sequences * dp_ : evaluated_sequences_;
    train.eval_steps = std::max<std::int64_t>(1, batches * each / run_.config.batch.global);
    reason("train.eval_steps", steps, "batches of batch.global here, of validation.local_batch_size there");
  }

  void checkpoint() {
    config::Checkpoint& checkpoint = run_.config.checkpoint;
    const Names enable{"checkpoint.enable", "checkpoint.enable_checkpoint"}, interval{"checkpoint.interval"};
    const Names folder{"checkpoint.folder"}, dump{"job.dump_folder", "dump_folder"};
    const Names keep{"checkpoint.keep_latest_k"}, async{"checkpoint.async_mode"};
    const bool saves = fields_.flag(enable, false);
    const std::int64_t every = fields_.integer(interval, 500), kept = fields_.integer(keep, 10);
    const std::string output = fields_.text(dump, ""), directory = fields_.text(folder, "checkpoint");
    const std::string mode = fields_.text(async, "disabled");
    if (!output.empty()) {
      run_.config.run.output = output;
      reason("run.output", dump);
      checkpoint.directory = (std::filesystem::path(output) / directory).string();
      reason("checkpoint.directory", folder);
    }
    checkpoint.every = saves ? every : 0;
    checkpoint.at_end = saves;
    reason("checkpoint.every", saves ? interval : enable);
    reason("checkpoint.at_end", enable);
    if (saves) {
      constexpr std::int64_t all = 1 << 20;
      checkpoint.keep = kept == 0 ? all : kept;
      reason("checkpoint.keep", keep, kept == 0 ? "all" : "");
      checkpoint.async = mode != "disabled";
      reason("checkpoint.async", async);
    }
    const Names last{"checkpoint.last_save_in_hf", "checkpoint.last_save_in_safetensors_format"};
    if (fields_.flag(last, false)) {
      run_.config.run.export_when = config::Export::end;
      reason("run.export", last);
    }
    initial_weights();
    const Names step{"checkpoint.load_step"};
    if (const std::int64_t wanted = fields_.integer(step, -1); wanted >= 0)
      differs(step,
              fmt::format("the latest checkpoint is resumed; for step {}, set checkpoint.resume to its path", wanted));
  }

  void initial_weights() {
    const Names path{"checkpoint.initial_load_path"}, hf{"checkpoint.initial_load_in_hf"};
    const Names alone{"checkpoint.initial_load_model_only", "checkpoint.initial_load_model_weights_only"};
    const Names quantized{"checkpoint.initial_load_in_hf_quantized"};
    const std::string from = fields_.text(path, "");
    const bool in_hf = fields_.flag(hf, false);
    if (!fields_.flag(alone, true) && !from.empty())
      differs(alone, "optimizer state and step of another run are not loaded");
    if (fields_.flag(quantized, false)) differs(quantized, "quantized weights are not read");
    run_.assets = fields_.text({"model.hf_assets_path", "hf_assets_path", "model.tokenizer_path"}, "");
    if (in_hf)
      run_.config.model.from = from.empty() ? run_.assets : from;
    else if (!from.empty())
      differs(path, from +
                        " is a DCP checkpoint: convert it with TorchTitan's scripts/checkpoint_conversion/"
                        "convert_to_hf.py and set model.from");
    if (in_hf) reason("model.from", from.empty() ? Names{"model.hf_assets_path", "hf_assets_path"} : path);
  }

  void others() {
    const Names seed{"debug.seed", "training.seed"}, deterministic{"debug.deterministic", "training.deterministic"};
    if (!fields_.take(seed).is_null()) {
      run_.config.run.seed = static_cast<std::uint64_t>(fields_.integer(seed, 0));
      reason("run.seed", seed);
    }
    if (fields_.flag(deterministic, false)) {
      run_.config.run.deterministic = true;
      reason("run.deterministic", deterministic);
    }
    if (const Names board{"metrics.enable_tensorboard"}; fields_.flag(board, false)) {
      run_.config.metrics.tensorboard = true;
      reason("metrics.tensorboard", board);
    }
    const Names start{"comm.init_timeout_seconds"}, step{"comm.train_timeout_seconds"};
    const double first = fields_.number(start, 0), later = fields_.number(step, 0);
    if (first > 0 || later > 0) {
      run_.config.comm.timeout_seconds = std::max(first, later);
      reason("comm.timeout_seconds", first > 0 ? start : step, "one timeout for start and steps: the longer one");
    }
  }

  SourceFields fields_;
  int ranks_;
  bool in_2026_;
  std::string name_, flavor_;  ///< of the model
  TranslatedRun run_{};
  std::int64_t dp_ = 0;
  std::int64_t evaluated_sequences_ = 1;  ///< of a batch of an evaluation there
};

}  // namespace

TranslatedRun translate_torchtitan(const nlohmann::json& job, const std::string& file, int ranks, bool with_model) {
  return Translation(job, file, ranks).finish(with_model);
}

}  // namespace trireme::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/init/from_lingua.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/init/source_fields.hpp"

namespace trireme::cli {
namespace {

using Names = SourceFields::Names;

/// Fields of Lingua's `TrainArgs` that no key stands for.
constexpr auto unmatched_of_lingua = std::to_array<WithoutCounterpart>({
    {"name", "run.name is that of the run file"},
    {"gc_collect_freq", "no Python"},
    {"probe_freq", "metrics.jsonl and trireme report show memory and traffic"},
    {"data.root_dir", "--data: token files of trireme tokenize"},
    {"data.sources.*", "--data: token files; weights: data.train = [{ path, weight }]"},
    {"data.n_views", "the target is the next token"},
    {"data.add_bos", "trireme tokenize puts the tokenizer's first token before documents"},
    {"data.add_eos", "trireme tokenize ends documents"},
    {"data.load_async", "a reader thread"},
    {"data.prefetch_size", "data.prefetch_batches"},
    {"optim.cycle_length", "one cycle"},
    {"optim.annealing_step", "not used there"},
    {"optim.exp_factor", "of inv_sqrt, which has no counterpart"},
    {"distributed.compile*", "kernels are compiled ahead of time"},
    {"distributed.matmul_allow_tf32", "products are in precision.compute"},
    {"distributed.allow_bf16_reduced_precision_reduction", "sums are fp32"},
    {"distributed.detect_anomaly", "no autograd; steps with values that are not finite are skipped and reported"},
    {"distributed.float8_filter", "precision.fp8_skip, in names of Hugging Face"},
    {"distributed.spawn_method", "no Python"},
    {"env.*", "comm and device keys; environment variables are the job's"},
    {"checkpoint.continue_training_from_init", "model.from takes weights alone"},
    {"checkpoint.eval.keep", "checkpoint.keep_every"},
    {"profiling.*", "metrics.trace_steps and metrics.memory_snapshot choose steps of the run"},
    {"logging.freq", "trireme train --log-every N; metrics.jsonl has every step (metrics.every)"},
    {"logging.acc_freq", "trireme train --log-every N"},
    {"logging.wandb*", "trireme export-metrics --to wandb, after the run"},
    {"async_eval_gpus", "evaluations are part of the run, or of trireme evaluate"},
    {"eval*", "trireme evaluate; lm-evaluation-harness reads the export (docs/after-export.md)"},
    {"model.max_seqlen", "data.seq_len"},
});

class LinguaTranslation {
 public:
  LinguaTranslation(const nlohmann::json& job, const std::string& file, int ranks)
      : fields_(file, job), ranks_(ranks) {}

  TranslatedRun finish(bool with_model) {
    model(with_model);
    mesh_and_batch();
    optimizer();
    learning_rate();
    memory();
    others();
    fields_.raise();
    run_.without_counterpart = fields_.unread(unmatched_of_lingua);
    return std::move(run_);
  }

 private:
  void reason(const std::string& key, Names names, const std::string& note = "") {
    const std::string_view name = fields_.present(names);
    run_.reasons[key] =
        fmt::format("{}{}{}{}", fields_.has(name) ? "" : "Lingua's default of ", name, note.empty() ? "" : ": ", note);
  }
  void differs(Names names, const std::string& note) {
    run_.differences.push_back(fmt::format("{}: {}", fields_.present(names), note));
  }

  void model(bool with_model) {
    config::Model model;
    model.hidden_size = fields_.integer({"model.dim"}, 512);
    model.layers = fields_.integer({"model.n_layers"}, 8);
    const std::int64_t head_dim = fields_.integer({"model.head_dim"}, 0);
    const std::int64_t heads = fields_.integer({"model.n_heads"}, 0);
    const std::int64_t multiple = fields_.integer({"model.multiple_of"}, 256);
    const double multiplier = fields_.number({"model.ffn_dim_multiplier"}, 1);
    const std::int64_t kv_heads = fields_.integer({"model.n_kv_heads"}, 0);
    const double base_std = fields_.number({"model.init_base_std"}, 0);
    const std::string factor = fields_.text({"model.init_std_factor"}, "disabled");
    model.norm_eps = fields_.number({"model.norm_eps"}, 1e-5);
    model.rope_theta = fields_.number({"model.rope_theta"}, 10000);
    model.tie_embeddings = fields_.flag({"model.weight_tying"}, false);
    model.vocab_size = std::max<std::int64_t>(0, fields_.integer({"model.vocab_size"}, -1));
    const std::int64_t window = fields_.integer({"model.sliding_window"}, 0);
    if (!with_model) return;
    if (model.hidden_size < 1 || multiple < 1 || (heads < 1 && head_dim < 1)) {
      fields_.refuse("model", "dim, multiple_of and n_heads or head_dim must be positive");
      return;
    }
    model.heads = heads > 0 ? heads : model.hidden_size / head_dim;
    model.head_dim = head_dim;
    model.kv_heads = kv_heads > 0 ? kv_heads : model.heads;
    const auto hidden = static_cast<std::int64_t>(multiplier * static_cast<double>(2 * 4 * model.hidden_size / 3));
    model.intermediate_size = multiple * ((hidden + multiple - 1) / multiple);
    model.init_std = base_std > 0 ? base_std : 1 / std::sqrt(static_cast<double>(model.hidden_size));
    if (factor == "global_depth" || factor == "current_depth") model.init = config::Init::depth_scaled;
    if (window > 0) differs({"model.sliding_window"}, "family llama has no windows; give a family with --from");
    const auto of = [&](const char* key, Names names) { reason(std::string("model.") + key, names); };
    of("architecture", {"model"});
    run_.reasons["model.architecture"] = "Lingua's transformer is a Llama";
    of("hidden_size", {"model.dim"});
    of("layers", {"model.n_layers"});
    of("heads", {"model.n_heads"});
    of("kv_heads", {"model.n_kv_heads"});
    of("norm_eps", {"model.norm_eps"});
    of("rope_theta", {"model.rope_theta"});
    of("tie_embeddings", {"model.weight_tying"});
    reason("model.intermediate_size", {"model.ffn_dim_multiplier"}, "with multiple_of");
    reason("model.init_std", {"model.init_base_std"}, base_std > 0 ? "" : "hidden_size^-0.5");
    reason("model.init", {"model.init_std_factor"}, factor);
    differs({"model.init_std_factor"},
            "Lingua cuts normal numbers at three std, and down_proj has intermediate_size^-0.5 without init_base_std");
    run_.config.model = model;
  }

  void mesh_and_batch() {
    config::RunConfig& config = run_.config;
    const Names shard{"distributed.dp_shard"}, replicate{"distributed.dp_replicate"}, tensor{"distributed.tp_size"};
    const Names type{"distributed.fsdp_type"};
    const std::string kind = fields_.text(type, "no_shard");
    config.mesh.shard = fields_.integer(shard, 1);
    config.mesh.replicate = fields_.integer(replicate, 1);
    config.mesh.tensor = fields_.integer(tensor, 1);
    const std::int64_t tensor_ranks = std::max<std::int64_t>(config.mesh.tensor, 1);
    const std::int64_t shards = std::max<std::int64_t>(config.mesh.shard, 1);
    if (ranks_ % (tensor_ranks * shards) != 0) {
      fields_.refuse("distributed",
                     fmt::format("dp_shard x tp_size = {} does not divide --ranks {}", tensor_ranks * shards, ranks_));
      return;
    }
    const std::int64_t replicas = ranks_ / (tensor_ranks * shards);  // as Lingua sets dp_replicate
    const bool over_all = kind == "full_shard" && shards == 1;       // FSDP over dp_replicate there
    config.mesh.shard = over_all ? replicas : shards;
    config.mesh.replicate = over_all ? 1 : replicas;
    reason("mesh.shard", shard, over_all ? "full_shard with dp_shard = 1 shards over all ranks" : kind);
    reason("mesh.replicate", replicate, over_all ? "" : "the ranks that are left, as in Lingua");
    reason("mesh.tensor", tensor);
    config.sync.policy = config::SyncPolicy::deferred;
    config.sync.reshard_after_forward = 1;
    run_.reasons["sync.policy"] = "gradients are reduced once a step, as in Lingua";
    run_.reasons["sync.reshard_after_forward"] = "Lingua keeps layers between forward and backward";
    const Names size{"data.batch_size"}, accumulation{"grad_acc_steps"}, length{"data.seq_len"}, steps{"steps"};
    config.batch.micro = fields_.integer(size, 2);
    config.batch.global = config.batch.micro * fields_.integer(accumulation, 1) * (ranks_ / tensor_ranks);
    config.data.seq_len = fields_.integer(length, 2048);
    config.train.steps = fields_.integer(steps, 1000);
    reason("batch.micro", size);
    reason("batch.global", accumulation, "times data.batch_size and the data-parallel ranks");
    reason("data.seq_len", length);
    reason("train.steps", steps);
  }

  void optimizer() {
    config::Optimizer& optimizer = run_.config.optimizer;
    const auto number = [&](double& value, const char* key, Names names, double fallback) {
      value = fields_.number(names, fallback);
      reason(std::string("optimizer.") + key, names);
    };
    number(optimizer.lr, "lr", {"optim.lr"}, 3e-4);
    number(optimizer.beta1, "beta1", {"optim.beta1"}, 0.9);
    number(optimizer.beta2, "beta2", {"optim.beta2"}, 0.95);
    number(optimizer.eps, "eps", {"optim.epsilon"}, 1e-8);
    number(optimizer.weight_decay, "weight_decay", {"optim.weight_decay"}, 0.1);
    number(optimizer.clip_norm, "clip_norm", {"optim.clip"}, 1);
    optimizer.no_decay.clear();
    run_.reasons["optimizer.no_decay"] =
        "Lingua decays all parameters; without this key norms and biases have no decay";
  }

  void learning_rate() {
    config::Lr& lr = run_.config.lr;
    const Names scheduler{"optim.scheduler"}, warmup{"optim.warmup"}, ratio{"optim.lr_min_ratio"};
    const Names fraction{"optim.decay_fraction"}, theta{"optim.cosine_theta"};
    const std::string kind = fields_.text(scheduler, "cosine");
    lr.warmup_steps = fields_.integer(warmup, 2000);
    lr.min_ratio = fields_.number(ratio, 0.1);
    const double decay = fields_.number(fraction, 0.1), power = fields_.number(theta, 1);
    reason("lr.schedule", scheduler);
    reason("lr.warmup_steps", warmup);
    reason("lr.min_ratio", ratio);
    if (kind == "constant") {
      lr.schedule = config::LrSchedule::constant;
      lr.warmup_steps = 0;
      reason("lr.warmup_steps", scheduler, "constant has no warm-up in Lingua");
    } else if (kind == "linear") {
      lr.schedule = config::LrSchedule::linear;
    } else if (kind == "wsd") {
      lr.schedule = config::LrSchedule::wsd;
      lr.wsd_decay_steps = static_cast<std::int64_t>(static_cast<double>(run_.config.train.steps) * decay);
      reason("lr.wsd_decay_steps", fraction);
      differs(scheduler, "the decay of wsd is linear here, hyperbolic in Lingua");
    } else if (kind != "cosine") {
      fields_.refuse("optim.scheduler", kind + " has no counterpart; set cosine, linear, constant or wsd");
    }
    if (kind == "cosine" && power != 1) differs(theta, fmt::format("{}: the cosine has theta 1 here", power));
    if (lr.warmup_steps > 0)
      differs(warmup,
              "step n of the warm-up has (n + 1) / warmup of the learning rate here, n / warmup in Lingua, whose "
              "first step has 0");
  }

  void memory() {
    const Names selective{"distributed.selective_activation_checkpointing"}, dtype{"distributed.model_dtype"};
    const Names recipe{"distributed.float8_recipe"};
    run_.config.memory.recompute =
        fields_.flag(selective, false) ? config::Recompute::selective : config::Recompute::none;
    reason("memory.recompute", selective);
    const std::string type = fields_.text(dtype, "bf16");
    run_.config.precision.compute = type == "fp32" ? DType::fp32 : DType::bf16;
    reason("precision.compute", dtype, "masters and moments stay fp32");
    if (type != "fp32" && type != "bf16") differs(dtype, type + " has no counterpart; bf16 is taken");
    const std::string fp8 = fields_.text(recipe, "");
    if (fp8.empty()) return;
    run_.config.precision.fp8 = fp8 == "tensorwise" ? Fp8::tensorwise : Fp8::rowwise;
    reason("precision.fp8", recipe, fp8);
  }

  void others() {
    config::RunConfig& config = run_.config;
    const Names seed{"seed"}, order{"data.seed"}, dump{"dump_dir"}, folder{"checkpoint.path"};
    const Names every{"checkpoint.dump.every"}, keep{"checkpoint.dump.keep"}, from{"checkpoint.init_ckpt_path"};
    const Names evaluation{"checkpoint.eval.every"};
    (void)fields_.take({"model.seed"});
    config.run.seed = static_cast<std::uint64_t>(std::max<std::int64_t>(0, fields_.integer(seed, 42)));
    config.data.seed = static_cast<std::uint64_t>(std::max<std::int64_t>(0, fields_.integer(order, 42)));
    reason("run.seed", seed);
    reason("data.seed", order);
    config.run.output = fields_.text(dump, "");
    if (!config.run.output.empty()) reason("run.output", dump);
    config.checkpoint.directory = fields_.text(folder, "");
    if (!config.checkpoint.directory.empty()) reason("checkpoint.directory", folder);
    config.checkpoint.every = fields_.integer(every, 1000);
    reason("checkpoint.every", every);
    constexpr std::int64_t all = 1 << 20;
    const std::int64_t kept = fields_.integer(keep, 0);
    config.checkpoint.keep = kept <= 0 ? all : kept;
    reason("checkpoint.keep", keep, kept <= 0 ? "all" : "");
    run_.validates = fields_.has("checkpoint.eval.every");
    config.train.eval_every = fields_.integer(evaluation, 0);
    if (run_.validates) reason("train.eval_every", evaluation, "on FILE-validation");
    if (const std::string path = fields_.text(from, ""); !path.empty())
      differs(from, path + " is a DCP checkpoint: export it to a Hugging Face directory and give that with --from");
    const Names tokenizer{"data.tokenizer.name"}, model{"data.tokenizer.path"};
    const std::string kind = fields_.text(tokenizer, "bytes"), path = fields_.text(model, "");
    if (kind == "sp" && !path.empty()) {
      config.data.tokenizer = "spm:" + path;
      reason("data.tokenizer", model);
    } else {
      differs(tokenizer, kind + (kind == "bytes" ? ": its ids begin with those of the beginning and end of a text; "
                                                   "tokenize with --tokenizer bytes, whose ids differ"
                                                 : ": give the tokenizer.json of the same vocabulary with --tokenizer "
                                                   "hf:FILE"));
    }
  }

  SourceFields fields_;
  int ranks_;
  TranslatedRun run_{};
};

}  // namespace

TranslatedRun translate_lingua(const nlohmann::json& job, const std::string& file, int ranks, bool with_model) {
  return LinguaTranslation(job, file, ranks).finish(with_model);
}

}  // namespace trireme::cli

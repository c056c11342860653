// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trireme/base/fp8.hpp"
#include "trireme/base/units.hpp"

/// The run file as values: one struct per TOML section, one member per key, the defaults as initialisers.
/// `config/options.hpp` holds the table that parses, explains, validates and prints them.
namespace trireme::config {

enum class Export { never, end, every_checkpoint };
enum class Init { normal, depth_scaled };
enum class TokenFormat { automatic, uint16, uint32, megatron, llmc };
/// How documents fill sequences: end to end in the order of the files, or by best-fit decreasing.
enum class Packing { concatenate, best_fit };
enum class SyncPolicy { immediate, deferred, immediate_all, automatic };
enum class Reduce { fp32, bf16, bf16_wire };
/// Storage of fp32 masters: as fp32, or split into bf16 and the remainder.
enum class Masters { fp32, split };
enum class Recompute { none, selective, block };
/// GPipe (Huang et al. 2019), 1F1B and interleaved 1F1B (Narayanan et al. 2021), ZB-H1 and ZB-V (Qi et al. 2023),
/// DualPipeV (DeepSeek 2025).
enum class ContextMethod { gather, heads };
enum class PipelineKind { gpipe, one_f_one_b, interleaved, zb_h1, zbv, dualpipev };
enum class Offload { none, optimizer, parameters };
enum class OptimizerName { adamw, muon };
/// Factor of an orthogonalized update; with moonlight its RMS is that of AdamW's.
enum class MuonScale { moonlight, jordan, spectral };
/// Coefficients of the Newton-Schulz iterations: Jordan 2024, or Polar Express (Amsel et al. 2025) with a safety factor
/// of 1.01.
enum class NewtonSchulz { jordan, polar_express };
enum class NewtonSchulzPrecision { automatic, fp32, bf16 };
enum class LrSchedule { cosine, linear, constant, wsd };
enum class DataOnResume { keep_going, restart };
enum class DeviceType { automatic, cpu, cuda };
enum class Backend { automatic, mpi, nccl };

struct RunSection {
  std::string name = "run";
  std::string output;  ///< directory; runs/<name> when the key is absent
  std::uint64_t seed = 1234;
  bool deterministic = false;
  bool overwrite = false;
  Export export_when = Export::never;  ///< key `export`
};

/// Scaling of RoPE to longer contexts, by Hugging Face's names. linear: positions / factor (Chen et al. 2023);
/// yarn: Peng et al. 2023; llama3: Llama 3.1's; longrope: a factor for each frequency (Ding et al. 2024); dynamic: a
/// base that grows with the sequence (dynamic NTK).
enum class RopeType { llama3, linear, yarn, longrope, dynamic };

/// `rope_scaling = { rope_type = "llama3", factor = 8.0, ... }`. A type reads its own members only.
struct RopeScaling {
  RopeType type = RopeType::llama3;
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
  double attention_factor = 0;  ///< cosines and sines times this; 0: yarn 1 + 0.1 ln(factor), longrope
                                ///< sqrt(1 + ln(factor) / ln(original_max_position_embeddings))
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  /// yarn: queries at position t are times 1 + beta ln(1 + floor(t / original_max_position_embeddings)) (Ministral 3).
  double llama_4_scaling_beta = 0;
  /// yarn: scores of latent attention are times (1 + 0.1 mscale_all_dim ln(factor))^2 (DeepSeek-V2); 0: as they are.
  double mscale_all_dim = 0;
  /// longrope: divisors of the frequencies, in sequences up to the original length and in longer ones.
  std::vector<double> short_factor{}, long_factor{};
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// The words of layer_types.
inline constexpr const char* full_attention = "full_attention";
inline constexpr const char* sliding_attention = "sliding_attention";

struct Model {
  std::string architecture = "llama";
  std::int64_t vocab_size = 0;  ///< 0: not given; may be left out when `from` is set (all sizes alike)
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;   ///< 0: heads
  std::int64_t head_dim = 0;   ///< 0: hidden_size / heads
  std::int64_t positions = 0;  ///< learned positions (gpt2); 0: not given
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  bool attention_bias = false;  ///< of q, k, v and o
  bool mlp_bias = false;
  bool qk_norm = false;                    ///< norms of the heads of queries and keys, where the family has the choice
  std::int64_t sliding_window = 0;         ///< 0: none
  std::vector<std::string> layer_types;    ///< a cycle of the two words above; empty: all layers have the window
  std::int64_t no_rope_interval = 0;       ///< every n-th layer has no RoPE; 0: none
  double rope_local_theta = 0;             ///< of layers with a window, whose RoPE is not scaled; 0: rope_theta
  double partial_rotary_factor = 1;        ///< the part of a head that RoPE turns, from its beginning
  std::int64_t query_pre_attn_scalar = 0;  ///< attention's scores times its ^-1/2; 0: head_dim
  double attention_multiplier = 0;         ///< attention's scores times it; 0: head_dim^-1/2
  double attn_logit_softcapping = 0;       ///< s becomes cap tanh(s / cap); 0: none
  double final_logit_softcapping = 0;      ///< the same of the logits
  /// Latent attention (DeepSeek-V2 2024): ranks of queries (0: no latent) and of keys and values, then the elements of
  /// a head of queries and keys without and with RoPE, and those of values. rope_interleave: RoPE turns neighbours.
  std::int64_t q_rank = 0, kv_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;
  bool rope_interleave = true;
  double embedding_multiplier = 1, residual_multiplier = 1;
  double logits_scaling = 1;  ///< divisor of the logits
  std::int64_t experts = 0;   ///< of every layer after the dense ones; 0: all layers are dense
  std::int64_t experts_per_token = 0;
  std::int64_t expert_size = 0;   ///< the width of one; 0: intermediate_size
  std::int64_t dense_layers = 0;  ///< first layers without experts
  bool router_normalize = true;   ///< the weights of a token's experts sum to 1, before the scale
  double router_scale = 1;        ///< of the weights of a token's experts
  /// Experts are in equal groups, and a token chooses among those of its best `router_groups_kept`.
  std::int64_t router_groups = 1, router_groups_kept = 1;
  std::int64_t shared_size = 0;  ///< the width of the shared experts together
  bool tie_embeddings = false;
  Init init = Init::normal;
  double init_std = 0.02;
  std::string from;
};

struct TokenSource {
  std::string path;
  double weight = 1.0;
  std::string set{};  ///< of data.validation: the set that it belongs to; empty: there is one, without a name
};

struct Data {
  std::vector<TokenSource> train;
  bool weighted = false;  ///< the list gave weights: sources are mixed, not concatenated
  std::vector<TokenSource> validation;
  std::vector<TokenSource> choices;  ///< files of multiple-choice questions
  TokenFormat format = TokenFormat::automatic;
  std::int64_t seq_len = 0;
  bool shuffle = true;
  std::optional<std::uint64_t> seed;  ///< run.seed when absent
  std::vector<std::int64_t> ignore_targets;
  std::optional<std::int64_t> document_end;
  bool document_mask = false;  ///< also set by Packing::best_fit
  Packing packing = Packing::concatenate;
  std::string tokenizer;
  bool check_tokenizer = true;
  std::optional<std::int64_t> skip_to;
  std::int64_t prefetch_batches = 2;
};

struct Mesh {
  std::int64_t replicate = 1;
  std::int64_t shard = -1;  ///< -1: the ranks left
  std::int64_t tensor = 1;
  std::optional<bool> sequence_parallel;  ///< tensor > 1 when absent
  std::int64_t context = 1;
  std::int64_t pipeline = 1;
  std::int64_t expert = 1;
  double expert_room =
      1.25;  ///< rows of an expert rank that the plan of memory has room for, times the balanced number
};

struct Context {
  ContextMethod method = ContextMethod::gather;
};

struct Pipeline {
  PipelineKind schedule = PipelineKind::one_f_one_b;
  std::optional<std::int64_t> chunks;  ///< of a rank; absent: 2 for interleaved, zbv and dualpipev, else 1
  std::vector<std::int64_t> layers;    ///< of each chunk; empty: by FLOPs
};

struct Batch {
  std::int64_t global = 0;  ///< sequences per step over all ranks
  std::int64_t micro = 0;   ///< sequences per microbatch and dp rank
};

struct Sync {
  SyncPolicy policy = SyncPolicy::immediate;
  /// 1: false (keep unsharded); 0: true (the whole shard axis); otherwise the group size to reshard to.
  std::int64_t reshard_after_forward = 0;
  bool reshard_after_backward = true;
  std::optional<Bytes> prefetch_bytes;  ///< absent: one block ahead
};

struct Precision {
  DType compute = DType::bf16;
  Reduce reduce = Reduce::fp32;
  Masters masters = Masters::fp32;
  DType moments = DType::fp32;
  Fp8 fp8 = Fp8::none;
  std::vector<std::string> fp8_skip;  ///< globs over Hugging Face parameter names
};

struct Memory {
  Recompute recompute = Recompute::selective;
  std::int64_t recompute_every = 1;
  bool activation_offload = false;
  Bytes activation_offload_min_bytes{1 << 20};
  std::int64_t activation_offload_in_flight = 1;
  Offload offload = Offload::none;
  double offload_fraction = 1.0;
  std::optional<Bytes> budget;
};

struct Loss {
  double z_loss = 0.0;
  double balance_loss = 0.0;  ///< of experts, over each sequence
  double router_z_loss = 0.0;
  double balance_bias_rate = 0.0;  ///< step of the routers' correction biases
  std::int64_t chunk_tokens = 0;   ///< 0: chosen
};

/// Update settings of the parameters that match `names`.
struct ParameterGroup {
  std::vector<std::string> names;      ///< globs over Hugging Face parameter names
  double lr = 1;                       ///< factor of the learning rate
  std::optional<double> weight_decay;  ///< absent: that of other parameters
  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

struct Optimizer {
  OptimizerName name = OptimizerName::adamw;
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::vector<std::string> no_decay = {"*norm*", "*.ln_*", "*.bias"};  ///< globs over Hugging Face parameter names
  double clip_norm = 1.0;                                              ///< 0: off
  std::vector<ParameterGroup> groups;
  // Settings of Muon.
  double momentum = 0.95;
  bool nesterov = true;
  MuonScale scale = MuonScale::moonlight;
  NewtonSchulz newton_schulz = NewtonSchulz::jordan;
  NewtonSchulzPrecision newton_schulz_precision = NewtonSchulzPrecision::automatic;
  std::vector<std::string> adamw;  ///< globs over Hugging Face parameter names: matrices that AdamW updates
  Bytes window_bytes{std::int64_t{1} << 30};
};

struct Lr {
  LrSchedule schedule = LrSchedule::cosine;
  std::int64_t warmup_steps = 0;
  std::optional<std::int64_t> end_step;  ///< train.steps when absent
  std::int64_t wsd_decay_steps = 0;
  std::optional<std::int64_t> warmup_tokens, end_tokens, wsd_decay_tokens;  ///< instead of steps, which follow
  double min_ratio = 0.1;
};

struct Train {
  std::int64_t steps = 0;
  std::optional<std::int64_t> tokens;  ///< instead of steps, which follow
  std::int64_t eval_every = 0;
  std::int64_t eval_steps = 0;
  std::int64_t choices_every = 0;
  std::int64_t choices_limit = 0;  ///< questions of each set; 0: all
  std::int64_t max_skipped_steps = 10;
  bool skip_spikes = false;
  std::int64_t replica_check_every = 0;
  std::optional<double> stop_before_limit_seconds;
};

struct Checkpoint {
  std::string directory;  ///< <run.output>/checkpoints when absent
  std::int64_t every = 0;
  bool at_end = true;
  std::int64_t keep = 2;
  std::int64_t keep_every = 0;
  std::optional<std::string> keep_best;  ///< by the loss on this validation set; "": on all of them; absent: off
  bool async = true;
  std::int64_t ranks_per_file = 1;
  std::string resume = "auto";  ///< auto | none | a path
  DataOnResume data = DataOnResume::keep_going;
};

struct Metrics {
  std::int64_t every = 1;
  bool block_norms = false;
  std::vector<std::int64_t> trace_steps;
  bool memory_snapshot = false;
  bool tensorboard = false;
  bool report = false;
  std::optional<double> peak_flops;  ///< FLOP/s of one rank, for mfu
};

struct Device {
  DeviceType type = DeviceType::automatic;
  std::int64_t threads = 0;  ///< 0: from affinity
  bool cuda_graphs = false;
};

struct Comm {
  Backend backend = Backend::automatic;
  double timeout_seconds = 600;
  std::optional<bool> lane_threads;  ///< absent: if a rank has a core to spare for them
  std::int64_t nccl_max_ctas = 0;    ///< thread blocks of an NCCL collective at most; 0: NCCL decides
  bool nccl_windows = false;         ///< memory of gathers and reductions is registered with NCCL
  bool nccl_copy_engines = false;    ///< gathers of registered memory by copy engines, not thread blocks
};

/// A whole run file, validated: every derived default filled in that does not depend on the number of ranks.
struct RunConfig {
  RunSection run;
  Model model;
  Data data;
  Mesh mesh;
  Context context;
  Pipeline pipeline;
  Batch batch;
  Sync sync;
  Precision precision;
  Memory memory;
  Loss loss;
  Optimizer optimizer;
  Lr lr;
  Train train;
  Checkpoint checkpoint;
  Metrics metrics;
  Device device;
  Comm comm;
};

}  // namespace trireme::config

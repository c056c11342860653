// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/rules.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "trireme/config/names.hpp"
#include "trireme/config/text_source.hpp"
#include "trireme/config/validation_sets.hpp"

namespace trireme::config {

namespace {

using Broken = std::optional<std::string>;

Broken heads_divide_hidden_size(const RunConfig& config) { return misfit_of_heads(config.model); }
Broken kv_heads_divide_heads(const RunConfig& config) { return misfit_of_kv_heads(config.model); }

Broken positions_reach_the_sequence(const RunConfig& config) {
  const std::int64_t positions = config.model.positions;
  if (positions == 0 || config.data.seq_len <= positions) return std::nullopt;
  return fmt::format(
      "{} learned positions are fewer than data.seq_len {}; set model.positions = {} or a shorter data.seq_len",
      positions, config.data.seq_len, config.data.seq_len);
}

Broken sequence_parallelism_has_its_axis(const RunConfig& config) {
  if (!config.mesh.sequence_parallel.value_or(false) || config.mesh.tensor > 1) return std::nullopt;
  return "sequence_parallel requires mesh.tensor > 1; set mesh.tensor, or remove the key";
}

Broken ignored_targets_are_in_the_vocabulary(const RunConfig& config) {
  const std::int64_t vocab_size = config.model.vocab_size;
  const auto& ids = config.data.ignore_targets;
  const auto beyond = std::find_if(ids.begin(), ids.end(), [&](std::int64_t id) { return id >= vocab_size; });
  if (vocab_size == 0 || beyond == ids.end()) return std::nullopt;
  return fmt::format("token id {} is beyond model.vocab_size {}; ids go from 0 to {}", *beyond, vocab_size,
                     vocab_size - 1);
}

Broken document_end_is_in_the_vocabulary(const RunConfig& config) {
  const std::int64_t vocab_size = config.model.vocab_size;
  if (vocab_size == 0 || config.data.document_end.value_or(0) < vocab_size) return std::nullopt;
  return fmt::format("token id {} is beyond model.vocab_size {}; ids go from 0 to {}", *config.data.document_end,
                     vocab_size, vocab_size - 1);
}

Broken text_has_a_tokenizer(const RunConfig& config) {
  const auto first_text = [&]() -> const TokenSource* {
    for (const auto* sources : {&config.data.train, &config.data.validation})
      for (const TokenSource& source : *sources)
        if (names_text(source.path)) return &source;
    return nullptr;
  }();
  if (first_text == nullptr) return std::nullopt;
  if (config.data.tokenizer.empty())
    return fmt::format(
        "{} is text, which needs data.tokenizer: \"bytes\", \"spm:PATH\" or \"hf:PATH\"; set it, or list token files",
        first_text->path);
  if (config.data.format == TokenFormat::automatic) return std::nullopt;
  return fmt::format("{} is text, but data.format is of token files; remove data.format", first_text->path);
}

Broken vocabulary_fits_the_format(const RunConfig& config) {
  if (config.data.format != TokenFormat::uint16 || config.model.vocab_size <= 65536) return std::nullopt;
  return fmt::format("uint16 tokens cannot reach model.vocab_size {}; set data.format = \"uint32\"",
                     config.model.vocab_size);
}

Broken micro_divides_global(const RunConfig& config) {
  const Batch& b = config.batch;
  if (b.micro == 0 || b.global == 0 || b.global % b.micro == 0) return std::nullopt;
  return fmt::format("{} is not a whole multiple of micro {}; set micro to {}", b.global, b.micro,
                     nearest_divisors(b.global, b.micro));
}

Broken parameters_can_be_counted(const RunConfig& config) { return beyond_counting(config.model); }

/// The bytes of a microbatch's activations are counted in 64 bits, and its tokens in 31.
Broken microbatch_can_be_counted(const RunConfig& config) {
  const Model& m = config.model;
  const double tokens = static_cast<double>(config.batch.micro) * static_cast<double>(config.data.seq_len);
  if (tokens >= 0x1p31)
    return fmt::format(
        "batch.micro {} x data.seq_len {} is {:.3g} tokens in a microbatch, at most 2147483647; set fewer",
        config.batch.micro, config.data.seq_len, tokens);
  const std::int64_t of_experts =
      std::max<std::int64_t>(1, m.experts_per_token) * std::max(m.expert_size, m.intermediate_size) + m.shared_size;
  const auto width = static_cast<double>(std::max({m.hidden_size, of_experts, m.vocab_size}));
  constexpr double tensors = 32;  // of a block, that backward may read
  const double bytes = 4 * tensors * tokens * width * static_cast<double>(std::max<std::int64_t>(1, m.layers));
  if (bytes < 0x1p60) return std::nullopt;
  return fmt::format(
      "a microbatch of {:.3g} tokens makes {:.3g} bytes of activations, more than can be counted; set "
      "fewer sequences (batch.micro) or shorter ones (data.seq_len)",
      tokens, bytes);
}

Broken tokens_can_be_counted(const RunConfig& config) {
  const double tokens = static_cast<double>(config.train.steps) * static_cast<double>(config.batch.global) *
                        static_cast<double>(config.data.seq_len);
  if (tokens < 0x1p62) return std::nullopt;
  return fmt::format("steps x batch.global x data.seq_len is {:.3g} tokens, more than can be counted; set fewer steps",
                     tokens);
}

Broken warmup_ends_before_the_decay(const RunConfig& config) {
  const Lr& lr = config.lr;
  const std::int64_t end = lr.end_step.value_or(0);
  // A run that ends where its schedule ends may be the first steps of a longer one: a trial of a real run file.
  if (end == 0 || end == config.train.steps) return std::nullopt;
  if (lr.warmup_steps >= end)
    return fmt::format("warmup_steps {} reach end_step {}; set fewer, or a later lr.end_step", lr.warmup_steps, end);
  if (lr.schedule == LrSchedule::wsd && lr.warmup_steps + lr.wsd_decay_steps > end)
    return fmt::format("warmup_steps {} + wsd_decay_steps {} go beyond end_step {}; set fewer", lr.warmup_steps,
                       lr.wsd_decay_steps, end);
  return std::nullopt;
}

Broken automatic_policy_has_a_budget(const RunConfig& config) {
  if (config.sync.policy != SyncPolicy::automatic || config.memory.budget) return std::nullopt;
  return "policy \"auto\" requires memory.budget; set it to the memory that a rank may use, such as \"60GiB\", or set "
         "a policy";
}

Broken wsd_has_its_decay_steps(const RunConfig& config) {
  const Lr& lr = config.lr;
  if (lr.schedule == LrSchedule::wsd && lr.wsd_decay_steps == 0)
    return "schedule \"wsd\" requires lr.wsd_decay_steps >= 1";
  if (lr.schedule != LrSchedule::wsd && lr.wsd_decay_steps > 0)
    return fmt::format(
        "wsd_decay_steps {} have no effect with schedule \"{}\"; set lr.schedule = \"wsd\" or remove them",
        lr.wsd_decay_steps, to_text(lr.schedule));
  return std::nullopt;
}

Broken evaluation_has_data(const RunConfig& config) {
  if (config.train.eval_every == 0 || !config.data.validation.empty()) return std::nullopt;
  return "eval_every requires data.validation; set it, or set eval_every = 0";
}

Broken choices_have_evaluations(const RunConfig& config) {
  const Train& train = config.train;
  if (config.data.choices.empty()) {
    if (train.choices_every == 0 && train.choices_limit == 0) return std::nullopt;
    return "choices_every and choices_limit are of data.choices; set it, or remove them";
  }
  if (config.data.tokenizer.empty())
    return "data.choices are texts, which need data.tokenizer: \"bytes\", \"spm:PATH\" or \"hf:PATH\"; set it";
  if (train.choices_every == 0) return std::nullopt;
  if (train.eval_every == 0) return "choices_every requires train.eval_every, whose evaluations score data.choices";
  if (train.choices_every % train.eval_every == 0) return std::nullopt;
  return fmt::format("choices_every {} is not a multiple of eval_every {}: choices are scored at evaluations; set {}",
                     train.choices_every, train.eval_every,
                     (train.choices_every / train.eval_every + 1) * train.eval_every);
}

Broken best_has_evaluations(const RunConfig& config) {
  if (!config.checkpoint.keep_best) return std::nullopt;
  if (config.train.eval_every == 0) return "keep_best requires train.eval_every > 0; set it, or set keep_best = false";
  const std::vector<std::string> sets = validation_sets(config.data);
  const std::string& best = *config.checkpoint.keep_best;
  if (best.empty() || std::ranges::find(sets, best) != sets.end()) return std::nullopt;
  return fmt::format(
      "keep_best \"{}\" is not a set of data.validation, whose sets are {}; use one of them, or true for "
      "the loss on all",
      best, sets.empty() || sets.front().empty() ? "not named" : fmt::format("{}", fmt::join(sets, ", ")));
}

Broken nccl_settings_need_nccl(const RunConfig& config) {
  const std::string set = nccl_setting(config.comm);
  if (set.empty()) return std::nullopt;
  const char* const why = config.comm.backend == Backend::mpi     ? "comm.backend = \"mpi\" does not use it"
                          : config.device.type == DeviceType::cpu ? "device.type = \"cpu\" does not use it"
                                                                  : nullptr;
  if (why != nullptr) return fmt::format("{} is for NCCL, and {}; leave it out", set, why);
  if (config.comm.nccl_windows && config.run.deterministic)
    return "nccl_windows = true lets NCCL choose kernels for windows, whose order of sums is not fixed; leave it out "
           "with run.deterministic = true";
  if (!config.comm.nccl_copy_engines || config.comm.nccl_windows) return std::nullopt;
  return "nccl_copy_engines = true works on registered memory; add comm.nccl_windows = true";
}

/// Names group, device type and operation of the first tensor that NCCL cannot move, which PyTorch's "No backend type
/// associated with device type cpu" leaves out.
Broken nccl_finds_its_tensors_on_gpus(const RunConfig& config) {
  if (config.comm.backend != Backend::nccl) return std::nullopt;
  constexpr const char* remedy =
      "set comm.backend = \"auto\" (NCCL for device tensors, MPI for host tensors of the same group)";
  if (config.device.type == DeviceType::cpu)
    return fmt::format(
        "\"nccl\" moves tensors on GPUs only, and device.type = \"cpu\" leaves those of every group in host memory: "
        "the first is all_gather over the group shard, of device type cpu; {}, or device.type = \"cuda\"",
        remedy);
  if (config.memory.offload != Offload::none)
    return fmt::format(
        "\"nccl\" moves tensors on GPUs only, and memory.offload = \"{}\" keeps gradients in host memory: their "
        "norm for clipping is a sum over the group dp, of device type cpu; {}, or memory.offload = \"none\"",
        to_text(config.memory.offload), remedy);
  return std::nullopt;
}

/// Graphs replay recorded launches: arguments must not move, nor differ from step to step.
Broken graphs_repeat_what_was_recorded(const RunConfig& config) {
  if (!config.device.cuda_graphs) return std::nullopt;
  if (config.device.type == DeviceType::cpu)
    return "cuda_graphs requires a GPU, but device.type is \"cpu\"; remove one of the two";
  std::string others;
  const auto unless = [&](bool fits, std::string_view change) {
    if (!fits) others += fmt::format("{}{}", others.empty() ? "" : " and ", change);
  };
  unless(config.mesh.tensor == 1, "mesh.tensor = 1 (tensor parallelism has collectives within layers)");
  unless(!config.memory.activation_offload, "memory.activation_offload = false (activations change their address)");
  unless(config.data.ignore_targets.empty(), "data.ignore_targets = [] (the loss scale varies per step)");
  const bool packs = config.data.packing == Packing::best_fit;
  unless(!packs, "data.packing = \"concatenate\" (documents and padding differ per step)");
  unless(packs || !config.data.document_mask, "data.document_mask = false (documents differ per step)");
  if (others.empty()) return std::nullopt;
  return fmt::format(
      "cuda_graphs replays a captured step and does not support these settings; set cuda_graphs = false, or {}",
      others);
}

std::vector<Rule> general_rules() {
  return {
      {{"model.heads", "model.hidden_size", "model.head_dim"}, heads_divide_hidden_size},
      {{"model.kv_heads", "model.heads"}, kv_heads_divide_heads},
      {{"model.positions", "data.seq_len"}, positions_reach_the_sequence},
      {{"mesh.sequence_parallel", "mesh.tensor"}, sequence_parallelism_has_its_axis},
      {{"data.ignore_targets", "model.vocab_size"}, ignored_targets_are_in_the_vocabulary},
      {{"data.document_end", "model.vocab_size"}, document_end_is_in_the_vocabulary},
      {{"data.format", "model.vocab_size"}, vocabulary_fits_the_format},
      {{"data.train", "data.validation", "data.tokenizer", "data.format"}, text_has_a_tokenizer},
      {{"batch.global", "batch.micro"}, micro_divides_global},
      {{"train.steps", "batch.global", "data.seq_len"}, tokens_can_be_counted},
      {{"model.layers", "model.hidden_size", "model.intermediate_size", "model.vocab_size", "model.heads",
        "model.kv_heads", "model.head_dim"},
       parameters_can_be_counted},
      {{"batch.micro", "data.seq_len", "model.layers", "model.hidden_size", "model.intermediate_size",
        "model.vocab_size"},
       microbatch_can_be_counted},
      {{"lr.warmup_steps", "lr.end_step", "lr.wsd_decay_steps", "lr.schedule", "train.steps"},
       warmup_ends_before_the_decay},
      {{"lr.wsd_decay_steps", "lr.schedule"}, wsd_has_its_decay_steps},
      {{"train.eval_every", "data.validation"}, evaluation_has_data},
      {{"train.choices_every", "train.choices_limit", "data.choices", "data.tokenizer", "train.eval_every"},
       choices_have_evaluations},
      {{"checkpoint.keep_best", "train.eval_every", "data.validation"}, best_has_evaluations},
      {{"sync.policy", "memory.budget"}, automatic_policy_has_a_budget},
      {{"comm.nccl_max_ctas", "comm.nccl_windows", "comm.nccl_copy_engines", "comm.backend", "device.type",
        "run.deterministic"},
       nccl_settings_need_nccl},
      {{"comm.backend", "device.type", "memory.offload"}, nccl_finds_its_tensors_on_gpus},
      {{"device.cuda_graphs", "device.type", "mesh.tensor", "memory.activation_offload", "data.ignore_targets",
        "data.document_mask", "data.packing"},
       graphs_repeat_what_was_recorded},
  };
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = [] {
    std::vector<Rule> list = general_rules();
    std::ranges::move(expert_rules(), std::back_inserter(list));
    std::ranges::move(precision_rules(), std::back_inserter(list));
    std::ranges::move(muon_rules(), std::back_inserter(list));
    return list;
  }();
  return all;
}

std::optional<std::string> misfit_of_heads(const Model& m) {
  if (m.heads == 0 || m.hidden_size == 0 || m.head_dim != 0 || m.hidden_size % m.heads == 0 || m.kv_rank > 0)
    return std::nullopt;
  return fmt::format("{} heads do not divide hidden_size {}; set model.head_dim, or {} heads", m.heads, m.hidden_size,
                     nearest_divisors(m.hidden_size, m.heads));
}

std::optional<std::string> misfit_of_kv_heads(const Model& m) {
  if (m.heads == 0 || m.kv_heads == 0 || m.heads % m.kv_heads == 0) return std::nullopt;
  return fmt::format("{} kv_heads do not divide {} heads; set {}", m.kv_heads, m.heads,
                     nearest_divisors(m.heads, m.kv_heads));
}

std::optional<std::string> beyond_counting(const Model& model) {
  struct Size {
    std::string_view name;
    std::int64_t value;
    std::int64_t most;
  };
  for (const auto& [name, value, most] : {Size{"vocab_size", model.vocab_size, largest_vocabulary},
                                          Size{"hidden_size", model.hidden_size, largest_width},
                                          Size{"intermediate_size", model.intermediate_size, largest_width},
                                          Size{"layers", model.layers, largest_count},
                                          Size{"heads", model.heads, largest_count},
                                          Size{"kv_heads", model.kv_heads, largest_count},
                                          Size{"head_dim", model.head_dim, largest_count},
                                          Size{"positions", model.positions, largest_length},
                                          Size{"experts", model.experts, largest_experts},
                                          Size{"experts_per_token", model.experts_per_token, largest_experts},
                                          Size{"expert_size", model.expert_size, largest_width},
                                          Size{"dense_layers", model.dense_layers, largest_count},
                                          Size{"router_groups", model.router_groups, largest_experts},
                                          Size{"router_groups_kept", model.router_groups_kept, largest_experts},
                                          Size{"shared_size", model.shared_size, largest_width},
                                          Size{"q_rank", model.q_rank, largest_width},
                                          Size{"kv_rank", model.kv_rank, largest_width},
                                          Size{"nope_dim", model.nope_dim, largest_width},
                                          Size{"rope_dim", model.rope_dim, largest_width},
                                          Size{"value_dim", model.value_dim, largest_width}})
    if (value < 0 || value > most) return fmt::format("{} is {}, at most {} are possible", name, value, most);
  const auto number = [](std::int64_t size) { return static_cast<double>(size); };
  const double width = number(model.hidden_size);
  const double of_latents = width * number(model.q_rank + model.kv_rank + model.rope_dim) +
                            number(model.heads) * (number(model.q_rank) * number(model.nope_dim + model.rope_dim) +
                                                   number(model.kv_rank) * number(model.nope_dim + model.value_dim));
  const double attention =
      2 * width * number(model.head_dim) * (number(model.heads) + number(model.kv_heads)) + of_latents;
  const double experts =
      number(model.experts) * 3 * width * number(model.expert_size > 0 ? model.expert_size : model.intermediate_size);
  const double parameters = number(model.layers) * (attention + 3 * width * number(model.intermediate_size) + experts +
                                                    3 * width * number(model.shared_size)) +
                            2 * width * (number(model.vocab_size) + number(model.positions));
  if (parameters < 0x1p50) return std::nullopt;
  return fmt::format("a model of these sizes has {:.3g} parameters, at most 1e15 can be counted; set smaller sizes",
                     parameters);
}

std::vector<InTokens> lengths_in_tokens(const RunConfig& config) {
  const std::int64_t end = config.lr.end_step.value_or(0);
  return {{"train.tokens", "train.steps", config.train.tokens, config.train.steps},
          {"lr.warmup_tokens", "lr.warmup_steps", config.lr.warmup_tokens, config.lr.warmup_steps},
          {"lr.end_tokens", "lr.end_step", config.lr.end_tokens, end},
          {"lr.wsd_decay_tokens", "lr.wsd_decay_steps", config.lr.wsd_decay_tokens, config.lr.wsd_decay_steps}};
}

namespace {

/// Sets the lengths in steps that are given in tokens.
void count_steps(RunConfig& config) {
  std::int64_t step = 0;  // tokens of one
  if (__builtin_mul_overflow(config.batch.global, config.data.seq_len, &step) || step <= 0) return;
  const auto steps = [step](std::int64_t tokens) { return tokens / step + (tokens % step > 0 ? 1 : 0); };
  if (config.train.tokens) config.train.steps = steps(*config.train.tokens);
  if (config.lr.warmup_tokens) config.lr.warmup_steps = steps(*config.lr.warmup_tokens);
  if (config.lr.end_tokens) config.lr.end_step = steps(*config.lr.end_tokens);
  if (config.lr.wsd_decay_tokens) config.lr.wsd_decay_steps = steps(*config.lr.wsd_decay_tokens);
}

}  // namespace

void complete(RunConfig& config) {
  count_steps(config);
  Model& model = config.model;
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0 && model.kv_rank > 0)
    model.head_dim = model.nope_dim + model.rope_dim;
  else if (model.head_dim == 0 && model.heads > 0 && model.hidden_size % model.heads == 0)
    model.head_dim = model.hidden_size / model.heads;
  if (config.run.output.empty()) config.run.output = "runs/" + config.run.name;
  if (config.checkpoint.directory.empty()) config.checkpoint.directory = config.run.output + "/checkpoints";
  if (config.data.packing == Packing::best_fit) config.data.document_mask = true;
  if (!config.data.seed) config.data.seed = config.run.seed;
  if (!config.mesh.sequence_parallel) config.mesh.sequence_parallel = config.mesh.tensor > 1;
  if (!config.lr.end_step && config.train.steps > 0) config.lr.end_step = config.train.steps;
}

}  // namespace trireme::config

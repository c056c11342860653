// SPDX-License-Identifier: Apache-2.0
// Rows of measured runs, and the reasons why some cannot be predicted.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "planner/validate/csv.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/planner/validate/published.hpp"

namespace trireme::planner {
namespace {

/// Public architectures of rows without sizes.
struct KnownModel {
  std::string_view name;
  double layers, hidden, intermediate, heads, kv_heads, vocab;
  bool tied, gated;
};
constexpr std::array known_models{
    KnownModel{"1.34B-llama", 16, 2048, 8192, 32, 32, 131072, true, true},
    KnownModel{"3.57B-llama", 28, 3072, 8192, 32, 32, 131072, true, true},
    KnownModel{"8.86B-llama", 32, 4096, 14336, 32, 32, 131072, false, true},
    KnownModel{"80B-llama", 80, 8192, 28672, 64, 64, 131072, false, true},
    KnownModel{"Llama3-8B", 32, 4096, 14336, 32, 8, 128256, false, true},
    KnownModel{"Llama3.1-8B", 32, 4096, 14336, 32, 8, 128256, false, true},
    KnownModel{"Llama3-70B", 80, 8192, 28672, 64, 8, 128256, false, true},
    KnownModel{"Llama3.1-70B", 80, 8192, 28672, 64, 8, 128256, false, true},
    KnownModel{"Llama3.1-405B", 126, 16384, 53248, 128, 8, 128256, false, true},
    KnownModel{"GPT3-175B", 96, 12288, 49152, 96, 96, 51200, true, false},
};

/// Ignores case.
bool contains(const std::string& text, std::string_view word) {
  return lowercase(text).find(lowercase(word)) != std::string::npos;
}

/// Whether the parameter count is nearer to three matrices in an MLP than to two; without a count, whether its width
/// is that of a gated one.
bool is_gated(const PublishedRow& row, double params) {
  if (params == 0) return row.intermediate != 4 * row.hidden || contains(row.model, "llama");
  const auto count = [&](double matrices) {
    const double attention = row.hidden * row.hidden * (2 + 2 * row.kv_heads / row.heads);
    return row.layers * (attention + matrices * row.hidden * row.intermediate) +
           row.vocab * row.hidden * (row.tied ? 1 : 2);
  };
  return std::abs(count(3) - params) <= std::abs(count(2) - params);
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), lowercase(trim(text))) != words.end();
}
bool says_no(std::string_view text) { return is_one_of(text, {"", "none", "no", "false", "0", "off"}); }
bool says_yes(std::string_view text) { return is_one_of(text, {"yes", "true", "1", "on"}); }

/// The last whole number of a text; nothing without one.
std::optional<int> last_number(std::string_view text) {
  const auto end = text.find_last_of("0123456789");
  if (end == std::string_view::npos) return std::nullopt;
  std::size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end + 1, number);
  return error == std::errc{} ? std::optional(number) : std::nullopt;
}

std::optional<double> power_limit(const std::string& gpu) {
  for (std::size_t at = gpu.find('W'); at != std::string::npos; at = gpu.find('W', at + 1)) {
    std::size_t first = at;
    while (first > 0 && std::isdigit(static_cast<unsigned char>(gpu[first - 1])) != 0) --first;
    double watts = 0;
    if (at - first >= 3 && std::from_chars(gpu.data() + first, gpu.data() + at, watts).ec == std::errc{}) return watts;
  }
  return std::nullopt;
}

class RowReader {
 public:
  RowReader(const Csv& csv, std::size_t row) : csv_(csv), row_(row) {}

  PublishedRow read() {
    out_.line = csv_.line(row_);
    out_.source = text("source");
    out_.framework = text("framework");
    out_.model = text("model");
    out_.gpu = text("gpu");
    out_.note = text("note");
    out_.recompute = text("recompute");
    out_.calibrates = is_one_of(text("use"), {"calibrate"});
    out_.power_limit = power_limit(out_.gpu);
    out_.gpus_per_node = csv_.number(row_, "gpus_per_node", 1);
    out_.tokens_per_second_per_gpu = number("tok_s_gpu", 0);
    if (const auto memory = csv_.number(row_, "mem_gb"))
      out_.memory = *memory * (contains(out_.note, "GiB") ? 1073741824.0 : 1e9);
    read_recompute();
    read_mesh();
    read_sizes();
    read_sharding();
    spread_replicas();
    refuse();
    return out_;
  }

 private:
  [[nodiscard]] const std::string& text(const char* column) const { return csv_.text(row_, column); }
  [[nodiscard]] double number(const char* column, double otherwise) const {
    return csv_.number(row_, column).value_or(otherwise);
  }
  void leave_out(const std::string& why) {
    if (out_.left_out.empty()) out_.left_out = why;
  }

  void read_recompute() {
    const std::string& again = out_.recompute;
    if (says_no(again)) return;
    if (contains(again, "op")) {
      out_.again = ComputedAgain::operations;
    } else if (contains(again, "layer") || contains(again, "/") || contains(again, "every")) {  // as "1/3"
      out_.again = ComputedAgain::blocks;
      out_.again_every = last_number(again).value_or(2);
      if (out_.again_every < 1) leave_out(fmt::format("recompute \"{}\" is unknown", again));
    } else if (says_yes(again) || contains(again, "full") || contains(again, "block")) {
      out_.again = ComputedAgain::blocks;
    } else if (contains(again, "selective") || contains(again, "attention")) {
      out_.again = ComputedAgain::attention;
    } else {
      leave_out(fmt::format("recompute \"{}\" is unknown", again));
    }
  }

  void read_mesh() {
    out_.ranks = number("n_gpus", 0);
    out_.seq_len = number("seq_len", 0);
    out_.micro = number("mbs", 0);
    out_.tensor = std::max(1.0, number("tp", 1));
    out_.pipeline = std::max(1.0, number("pp", 1));
    out_.chunks = std::max(1.0, number("vp", 1));
    out_.replicas = std::max(1.0, number("replicas", 1));
    const double others = out_.tensor * out_.pipeline * std::max(1.0, number("cp", 1));
    out_.dp = number("dp", out_.ranks / others);
    // Some tables call the ranks of one replica dp.
    if (out_.dp * others != out_.ranks && out_.dp * out_.replicas * others == out_.ranks) out_.dp *= out_.replicas;
    const double global = number("gbs_seqs", 0);
    if (out_.micro > 0 && out_.dp > 0)
      out_.accumulation =
          number("grad_acc", global > 0 ? std::max(1.0, std::round(global / (out_.micro * out_.dp))) : 1);
    if (number("cp", 1) > 1) leave_out("context parallelism");
    if (number("ep", 1) > 1) leave_out("experts");
    if (out_.ranks <= 0 || out_.seq_len <= 0 || out_.micro <= 0 || out_.tokens_per_second_per_gpu <= 0)
      leave_out("no ranks, sequence length, microbatch or tokens/s");
    if (global > 0 && out_.dp * out_.micro * out_.accumulation != global)
      leave_out("dp x mbs x grad_acc is not gbs_seqs");
  }

  void read_sizes() {
    out_.layers = number("layers", 0);
    out_.hidden = number("hidden", 0);
    out_.intermediate = number("intermediate", 0);
    out_.heads = number("heads", 0);
    out_.vocab = number("vocab", 0);
    out_.kv_heads = number("kv_heads", out_.heads);
    out_.tied = says_yes(text("tied"));
    const auto known = std::find_if(known_models.begin(), known_models.end(),
                                    [&](const KnownModel& m) { return m.name == out_.model; });
    const bool given = out_.layers > 0 && out_.hidden > 0 && out_.intermediate > 0 && out_.heads > 0 && out_.vocab > 0;
    if (!given && known != known_models.end()) {
      out_.layers = known->layers, out_.hidden = known->hidden, out_.intermediate = known->intermediate;
      out_.heads = known->heads, out_.kv_heads = known->kv_heads, out_.vocab = known->vocab;
      out_.tied = known->tied, out_.gated = known->gated;
    } else if (given) {
      if (out_.kv_heads <= 0) out_.kv_heads = out_.heads;
      out_.gated = is_gated(out_, number("params_b", 0) * 1e9);
    } else {
      leave_out(fmt::format("no sizes for {}", out_.model.empty() ? "a model without a name" : out_.model));
    }
  }

  void read_sharding() {
    const std::string& shard = text("shard");
    if (contains(shard, "FSDP") || contains(shard, "HSDP") || contains(shard, "FULL") || contains(shard, "ZeRO-3") ||
        contains(shard, "HYBRID"))
      out_.sharding = Sharding::full;
    else if (contains(shard, "ZeRO-2") || contains(shard, "GRAD_OP"))
      out_.sharding = Sharding::zero2;
    else if (contains(shard, "ZeRO-1") || contains(shard, "dist-opt"))
      out_.sharding = Sharding::zero1;
    else if (contains(shard, "ZeRO-0") || contains(shard, "DDP") || contains(shard, "NO_SHARD") || says_no(shard))
      out_.sharding = Sharding::zero0;
    else
      leave_out(fmt::format("sharding \"{}\" is unknown", shard));
  }

  /// Hybrid sharding with an unstated number of replicas: each node is one.
  void spread_replicas() {
    const std::string& shard = text("shard");
    if ((!contains(shard, "HSDP") && !contains(shard, "HYBRID")) || csv_.number(row_, "replicas") || !machine_of(out_))
      return;
    const double nodes = out_.ranks / machine_of(out_)->gpus_per_node;
    if (nodes > 1 && std::fmod(out_.dp, nodes) == 0) out_.replicas = nodes;
  }

  void refuse() {
    refuse_sizes();
    if (contains(text("precision"), "fp8")) leave_out("fp8");
    if (!says_no(text("offload"))) leave_out("offload of another trainer");
    if (out_.ranks >= 512 && contains(out_.gpu, "EFA")) leave_out("512 GPUs and more on EFA: not predictable");
    if (out_.pipeline > 1 && out_.sharding >= Sharding::zero2) leave_out("full sharding within a pipeline");
    if (out_.left_out.empty() && !machine_of(out_)) leave_out(fmt::format("no machine file for {}", out_.gpu));
  }

  void refuse_sizes() {
    const std::array counts{out_.ranks,    out_.dp,     out_.tensor,       out_.pipeline, out_.chunks,
                            out_.micro,    out_.layers, out_.heads,        out_.kv_heads, out_.hidden,
                            out_.replicas, out_.vocab,  out_.intermediate, out_.seq_len,  out_.accumulation};
    constexpr double most = 1e7, most_layers = 1e4, most_sequences = 1e9, least_rate = 1e-6, least_memory = 1e6;
    if (*std::max_element(counts.begin(), counts.end()) > most || out_.layers > most_layers ||
        out_.dp * out_.micro * out_.accumulation > most_sequences || out_.tokens_per_second_per_gpu < least_rate)
      leave_out("sizes beyond any machine");
    if (std::any_of(counts.begin(), counts.end(), [](double count) { return count < 1 || count != std::floor(count); }))
      leave_out("counts that are not whole, or 0");
    if (out_.heads > out_.hidden || out_.kv_heads > out_.heads || out_.replicas > out_.dp)
      leave_out("more heads or replicas than there is to divide");
    if (out_.memory && *out_.memory < least_memory) out_.memory.reset();
  }

  const Csv& csv_;
  std::size_t row_;
  PublishedRow out_;
};

}  // namespace

std::string_view to_text(Family family) {
  switch (family) {
    case Family::fsdp: return "FSDP and HSDP";
    case Family::zero0: return "ZeRO-0";
    case Family::zero1: return "ZeRO-1";
    case Family::tensor: return "TP";
    case Family::pipeline: return "PP";
  }
  return "?";
}

Family PublishedRow::family() const {
  if (pipeline > 1) return Family::pipeline;
  if (tensor > 1) return Family::tensor;
  if (sharding >= Sharding::zero2) return Family::fsdp;
  return sharding == Sharding::zero1 ? Family::zero1 : Family::zero0;
}

bool PublishedRow::fused_kernels() const {
  return contains(note, "compile") || contains(framework, "Megatron") || contains(framework, "NeMo");
}

std::vector<PublishedRow> read_published(std::string_view text, const std::string& name) {
  const Csv csv(text, name);
  csv.require({"model", "gpu", "n_gpus", "seq_len", "mbs", "dp", "shard", "tp", "pp", "tok_s_gpu"});
  std::vector<PublishedRow> rows;
  for (std::size_t i = 0; i < csv.rows(); ++i) rows.push_back(RowReader(csv, i).read());
  return rows;
}

std::optional<Machine> machine_of(const PublishedRow& row) {
  std::optional<Machine> machine = find_machine(row.gpu);
  if (machine && row.gpus_per_node) machine->gpus_per_node = *row.gpus_per_node;
  return machine;
}

}  // namespace trireme::planner

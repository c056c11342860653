// SPDX-License-Identifier: Apache-2.0
// The sections [model], [optimizer], [lr] and [loss]: what is learned, and how.
#include <array>

#include "config/section.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::config {

namespace {

// --- rope_scaling = { rope_type = "llama3", factor = 8.0, ... }
// -----------------------------------------------------------

constexpr const char* rope_scaling_form =
    "{ rope_type = \"llama3\", factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0, "
    "original_max_position_embeddings = 8192 }";

Expected read_rope_field(const Field& field, RopeScaling& scaling, bool& is_llama3) {
  const auto& [key, value] = field;
  if (key == "rope_type") {
    const auto* type = std::get_if<std::string>(&value.data);
    is_llama3 = type != nullptr && *type == "llama3";
    return is_llama3 ? std::nullopt : Expected("\"llama3\"");
  }
  if (key == "factor") return read(value, scaling.factor, at_least(1));
  if (key == "low_freq_factor") return read(value, scaling.low_freq_factor, above(0));
  if (key == "high_freq_factor") return read(value, scaling.high_freq_factor, above(0));
  if (key == "original_max_position_embeddings")
    return read(value, scaling.original_max_position_embeddings, between(1, 1 << 30));
  return "one of rope_type, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings";
}

Expected read_rope_scaling(const Value& value, Model& model) {
  const std::string form = std::string("a table ") + rope_scaling_form;
  const auto* fields = std::get_if<Fields>(&value.data);
  if (fields == nullptr) return form;
  RopeScaling scaling;
  bool is_llama3 = false;
  for (const Field& field : *fields)
    if (const Expected expected = read_rope_field(field, scaling, is_llama3))
      return form + "; in it, " + field.key + " = " + describe(field.value) + " where it takes " + *expected;
  if (!is_llama3) return form + "; rope_type is missing";
  if (scaling.low_freq_factor >= scaling.high_freq_factor) return form + "; low_freq_factor below high_freq_factor";
  model.rope_scaling = scaling;
  return std::nullopt;
}

Printed print_rope_scaling(const Model& model) {
  if (!model.rope_scaling) return std::nullopt;
  const RopeScaling& scaling = *model.rope_scaling;
  return "{ rope_type = \"llama3\", factor = " + *print(scaling.factor) +
         ", low_freq_factor = " + *print(scaling.low_freq_factor) +
         ", high_freq_factor = " + *print(scaling.high_freq_factor) +
         ", original_max_position_embeddings = " + *print(scaling.original_max_position_embeddings) + " }";
}

}  // namespace

std::vector<Option> model_options() {
  Section<Model> s("model", &RunConfig::model);
  s.word("architecture", &Model::architecture, "model family: llama | gpt2");
  s.size("vocab_size", &Model::vocab_size, largest_vocabulary,
         "vocabulary size; may be omitted with model.from, as all sizes")
      .required_unless("model.from");
  s.size("hidden_size", &Model::hidden_size, largest_width, "width of the residual stream")
      .required_unless("model.from");
  s.size("intermediate_size", &Model::intermediate_size, largest_width, "width of the feed-forward (MLP) layer")
      .required_unless("model.from");
  s.size("layers", &Model::layers, largest_count, "number of transformer blocks").required_unless("model.from");
  s.size("heads", &Model::heads, largest_count, "number of attention heads").required_unless("model.from");
  s.size("kv_heads", &Model::kv_heads, largest_count,
         "number of key and value heads (grouped-query attention); must divide heads")
      .default_is("heads");
  s.size("head_dim", &Model::head_dim, largest_count, "size of one head; must be even with RoPE")
      .default_is("hidden_size / heads");
  s.size("positions", &Model::positions, largest_length,
         "number of learned position embeddings, at least data.seq_len (gpt2 only)")
      .default_is("none: RoPE");
  s.number("norm_eps", &Model::norm_eps, above(0), "epsilon added to the variance (gpt2) or mean square in the norms");
  s.number("rope_theta", &Model::rope_theta, above(0), "base of the RoPE frequencies");
  s.custom("rope_scaling", "table", read_rope_scaling, print_rope_scaling,
           std::string("Llama 3.1 RoPE scaling: ") + rope_scaling_form)
      .default_is("none");
  s.flag("tie_embeddings", &Model::tie_embeddings, "the output head shares the weights of the token embedding");
  s.choice(
      "init", &Model::init,
      "weight initialization; depth_scaled divides the std of the residual output projections by sqrt(2 * layers)");
  s.number("init_std", &Model::init_std, at_least(0), "standard deviation of the initial weights");
  s.path("from", &Model::from, "Hugging Face directory or checkpoint from which to load the weights at step 0")
      .default_is("none");
  s.reserved("qk_norm", 0, "normalization of queries and keys");
  s.reserved("attention_bias", 0, "biases of the attention projections");
  s.reserved("mlp_bias", 0, "biases of the feed-forward layer");
  s.reserved("sliding_window", 0, "size of the attention window");
  s.reserved("logit_softcap", 0, "soft cap of the logits");
  return s.take();
}

std::vector<Option> loss_options() {
  Section<Loss> s("loss", &RunConfig::loss);
  s.number("z_loss", &Loss::z_loss, at_least(0), "weight of the z-loss, the mean of log(Z)^2 (PaLM)");
  s.number("chunk_tokens", &Loss::chunk_tokens, between(0, 1 << 30),
           "number of tokens whose logits are materialized at once (0: automatic)");
  return s.take();
}

std::vector<Option> optimizer_options() {
  Section<Optimizer> s("optimizer", &RunConfig::optimizer);
  s.custom(
      "name", "adamw",
      [](const Value& value, Optimizer& optimizer) -> Expected {
        const auto* name = std::get_if<std::string>(&value.data);
        if (name == nullptr || *name != "adamw") return "\"adamw\"";
        optimizer.name = *name;
        return std::nullopt;
      },
      [](const Optimizer& optimizer) { return print(optimizer.name); }, "AdamW (Loshchilov and Hutter 2019)");
  s.number("lr", &Optimizer::lr, at_least(0), "peak learning rate");
  s.number("beta1", &Optimizer::beta1, from_to_below(0, 1), "decay rate of the first moment");
  s.number("beta2", &Optimizer::beta2, from_to_below(0, 1), "decay rate of the second moment");
  s.number("eps", &Optimizer::eps, at_least(0), "epsilon added to the square root of the second moment");
  s.number("weight_decay", &Optimizer::weight_decay, at_least(0), "decoupled weight decay");
  s.custom(
      "no_decay", "strings", [](const Value& value, Optimizer& optimizer) { return read(value, optimizer.no_decay); },
      [](const Optimizer& optimizer) { return print(optimizer.no_decay); },
      "parameters without weight decay: glob patterns over Hugging Face names");
  s.number("clip_norm", &Optimizer::clip_norm, at_least(0), "clip gradients to this global L2 norm (0: off)");
  return s.take();
}

std::vector<Option> lr_options() {
  Section<Lr> s("lr", &RunConfig::lr);
  constexpr double largest_step = 0x1p40;
  s.choice("schedule", &Lr::schedule, "learning rate schedule after warmup");
  s.number("warmup_steps", &Lr::warmup_steps, between(0, largest_step), "number of linear warmup steps");
  s.number("end_step", &Lr::end_step, between(1, largest_step), "step at which the minimum learning rate is reached")
      .default_is("train.steps");
  s.number("wsd_decay_steps", &Lr::wsd_decay_steps, between(0, largest_step),
           "number of decay steps at the end of the wsd schedule");
  s.number("min_ratio", &Lr::min_ratio, between(0, 1), "minimum learning rate, as a fraction of optimizer.lr");
  return s.take();
}

}  // namespace trireme::config

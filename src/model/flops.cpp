// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "trireme/model/architecture.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model {

std::int64_t product_elements(const Model& model, Block block) {
  std::int64_t elements = 0, of_experts = 0;
  for (const Stage& stage : model[block].stages) {
    if (looks_up(stage.kind)) continue;
    for (const ParamRef& ref : stage.parameters) {
      if (model[ref].shape.size() != 2) continue;
      if (is_expert(model[ref].role))
        of_experts += model[ref].full_elements();
      else
        elements += model[ref].full_elements();
    }
  }
  if (of_experts == 0) return elements;
  const Experts& experts = *model.sizes.decoder.experts;
  return elements + of_experts / experts.count * experts.per_token;
}

double flops_per_token(const Model& model, std::int64_t seq_len) {
  std::int64_t in_products = 0;
  for (int block = 0; block < model.blocks(); ++block) in_products += product_elements(model, Block{block});
  const Sizes& sizes = model.sizes;
  std::int64_t keys = 0;  // that queries see, over layers
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    const std::int64_t window = window_of(model.config, layer);
    keys += window > 0 ? std::min(window, seq_len) : seq_len;
  }
  return 6.0 * static_cast<double>(in_products) +
         6.0 * static_cast<double>(sizes.heads * (sizes.head_dim + sizes.value_dim())) * static_cast<double>(keys);
}

std::string_view flop_rule() {
  return "6 * parameters in matrix products + 12 * layers * heads * head_dim * seq_len per token (PaLM appendix B)";
}

}  // namespace trireme::model

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/hf/post_processor.hpp"

#include <nlohmann/json.hpp>

namespace trireme::tokenizer::hf {
namespace {

std::int32_t id_at(const Node& node) {
  if (!node.value().is_number_integer() || node.value().get<std::int64_t>() < 0) node.refuse("is not a token id");
  return static_cast<std::int32_t>(node.value().get<std::int64_t>());
}

/// ["</s>", 2]
std::int32_t id_of_pair(const Node& node) {
  const auto items = node.items();
  if (items.size() != 2) node.refuse("is not a token and its id");
  return id_at(items[1]);
}

Frame read_template(const Node& node) {
  Frame frame;
  bool text_seen = false;
  for (const Node& item : node["single"].items()) {
    if (!item["Sequence"].is_null()) {
      if (text_seen) item.refuse("is a second text, which is not supported");
      text_seen = true;
      continue;
    }
    const Node ids = node["special_tokens"][item["SpecialToken"].text("id")]["ids"];
    for (const Node& id : ids.items()) (text_seen ? frame.after : frame.before).push_back(id_at(id));
  }
  if (!text_seen) node["single"].refuse("has no text");
  return frame;
}

}  // namespace

Frame read_post_processor(const Node& node) {
  if (node.is_null()) return {};
  const std::string type = node.text("type", "");
  if (type == "ByteLevel") return {};  // it trims offsets, which are not used here
  if (type == "TemplateProcessing") return read_template(node);
  if (type == "RobertaProcessing" || type == "BertProcessing")
    return {.before = {id_of_pair(node["cls"])}, .after = {id_of_pair(node["sep"])}};
  if (type == "Sequence") {
    Frame all;
    for (const Node& item : node["processors"].items()) {
      const Frame inner = read_post_processor(item);
      all.before.insert(all.before.begin(), inner.before.begin(), inner.before.end());
      all.after.insert(all.after.end(), inner.after.begin(), inner.after.end());
    }
    return all;
  }
  node.refuse_type("Sequence, ByteLevel, TemplateProcessing, RobertaProcessing and BertProcessing");
}

}  // namespace trireme::tokenizer::hf

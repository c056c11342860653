// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/node.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "tokenizer/text/utf8.hpp"
#include "trireme/base/error.hpp"

namespace trireme::tokenizer::hf {
namespace {

const nlohmann::json null_value;

}  // namespace

std::string Node::where() const { return key_.empty() ? file_ : fmt::format("{}: {}", file_, key_); }

bool Node::is_null() const { return value_->is_null(); }

Node Node::operator[](std::string_view name) const {
  const std::string key = key_.empty() ? std::string(name) : fmt::format("{}.{}", key_, name);
  const auto found = value_->is_object() ? value_->find(name) : value_->end();
  return {value_->is_object() && found != value_->end() ? *found : null_value, file_, key};
}

std::vector<Node> Node::items() const {
  if (!value_->is_array()) refuse("is not an array");
  std::vector<Node> nodes;
  for (const auto& item : *value_) nodes.emplace_back(item, file_, fmt::format("{}[{}]", key_, nodes.size()));
  return nodes;
}

std::string Node::text(std::string_view name) const {
  const Node node = (*this)[name];
  if (!node.value_->is_string()) node.refuse(node.is_null() ? "is missing" : "is not a string");
  return node.value_->get<std::string>();
}

std::string Node::text(std::string_view name, std::string fallback) const {
  return (*this)[name].is_null() ? std::move(fallback) : text(name);
}

bool Node::flag(std::string_view name, bool fallback) const {
  const Node node = (*this)[name];
  if (node.is_null()) return fallback;
  if (!node.value_->is_boolean()) node.refuse("is neither true nor false");
  return node.value_->get<bool>();
}

std::int64_t Node::whole(std::string_view name) const {
  const Node node = (*this)[name];
  if (!node.value_->is_number_integer()) node.refuse(node.is_null() ? "is missing" : "is not an integer");
  return node.value_->get<std::int64_t>();
}

char32_t Node::character(std::string_view name) const {
  std::string storage;
  const std::string all = text(name);
  const std::string_view valid = valid_utf8(all, storage);
  if (valid.empty() || code_point_at(valid, 0).bytes != valid.size()) (*this)[name].refuse("is not one character");
  return code_point_at(valid, 0).value;
}

void Node::refuse_type(std::string_view supported) const {
  const Node type = (*this)["type"];
  type.refuse(fmt::format("is {}, which is not supported; supported are {}",
                          type.is_null() ? "missing" : io::shown(*type.value_), supported));
}

void Node::refuse(std::string_view what) const { throw DataError(fmt::format("{} {}", where(), what)); }

}  // namespace trireme::tokenizer::hf

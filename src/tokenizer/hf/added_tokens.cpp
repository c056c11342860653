// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/hf/added_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "tokenizer/text/utf8.hpp"

namespace trireme::tokenizer::hf {
namespace {

bool is_apart(std::string_view text, std::size_t begin, std::size_t end) {
  const bool before = begin == 0 || !is_word(code_point_before(text, begin).value);
  const bool after = end == text.size() || !is_word(code_point_at(text, end).value);
  return before && after;
}

std::size_t before_white_space(std::string_view text, std::size_t end) {
  while (end > 0) {
    const CodePoint point = code_point_before(text, end);
    if (!is_white_space(point.value)) break;
    end -= point.bytes;
  }
  return end;
}

std::size_t after_white_space(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const CodePoint point = code_point_at(text, begin);
    if (!is_white_space(point.value)) break;
    begin += point.bytes;
  }
  return begin;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const Node& node) {
  std::vector<AddedToken> tokens;
  if (node.is_null()) return tokens;
  for (const Node& item : node.items()) {
    const std::int64_t id = item.whole("id");
    if (id < 0 || id > INT32_MAX / 2) item["id"].refuse("is not a token id");
    const bool special = item.flag("special", false);
    tokens.push_back({.id = static_cast<std::int32_t>(id),
                      .content = item.text("content"),
                      .special = special,
                      .single_word = item.flag("single_word", false),
                      .left_strip = item.flag("lstrip", false),
                      .right_strip = item.flag("rstrip", false),
                      .normalized = item.flag("normalized", !special)});
  }
  return tokens;
}

std::vector<AddedToken> numbered(const Node& node, std::vector<AddedToken> in_file,
                                 const std::vector<AddedToken>& listed, const std::vector<AddedToken>& if_absent,
                                 const Vocabulary& vocabulary, std::size_t model_tokens) {
  std::vector<AddedToken> all;
  std::unordered_map<std::string, std::size_t> places;
  const auto behind_model = static_cast<std::int64_t>(model_tokens);
  std::int64_t most = -1;
  const auto add = [&](AddedToken token, bool replaces) {
    if (token.content.empty()) return;
    const auto [place, fresh] = places.emplace(token.content, all.size());
    const std::int32_t known = id_of(vocabulary, token.content);
    const std::int64_t next = most >= behind_model ? most + 1 : behind_model;
    const std::int64_t id = !fresh ? all[place->second].id : known >= 0 ? known : next;
    if (token.id != no_id && token.id != id) {
      if (known >= 0)
        node.refuse(fmt::format("gives \"{}\" the id {}, which model.vocab has as {}", token.content, token.id, known));
      node.refuse(
          fmt::format("gives \"{}\" the id {}, to which the tokenizers package and transformers give {}: added tokens "
                      "are numbered behind those of the model, one after another; save the file again with "
                      "transformers, which writes the ids that it uses",
                      token.content, token.id, id));
    }
    token.id = static_cast<std::int32_t>(id);
    most = std::max(most, id);
    if (fresh)
      all.push_back(std::move(token));
    else if (replaces)
      all[place->second] = std::move(token);
  };
  for (AddedToken& token : in_file) add(std::move(token), true);
  for (const AddedToken& token : listed) add(token, true);
  for (const AddedToken& token : if_absent) add(token, false);
  return all;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& all, bool normalized,
                                   const std::vector<Normalizer>& normalizers) {
  for (const AddedToken& token : all) {
    if (token.normalized != normalized || token.content.empty()) continue;
    std::string storage;
    const std::string_view content = normalized ? hf::normalized(normalizers, token.content, storage) : token.content;
    if (content.empty()) continue;
    trie_.insert(content, static_cast<std::int32_t>(tokens_.size()));
    tokens_.push_back(token);
  }
}

AddedTokenFinder::Match AddedTokenFinder::next(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!trie_.begins(text[at])) continue;
    Match match{at, at, nullptr};
    trie_.prefixes(text.substr(at), [&](std::size_t bytes, std::int32_t index) {
      match.end = at + bytes;
      match.token = &tokens_[static_cast<std::size_t>(index)];
    });
    if (match.token != nullptr) return match;
  }
  return {text.size(), text.size(), nullptr};
}

void AddedTokenFinder::split(std::string_view text, const std::function<void(std::int32_t)>& token,
                             const std::function<void(std::size_t, std::size_t)>& between) const {
  std::size_t done = 0;
  std::size_t from = 0;
  while (!tokens_.empty()) {
    Match match = next(text, from);
    if (match.token == nullptr) break;
    from = match.end;
    if (match.token->single_word && !is_apart(text, match.begin, match.end)) continue;
    if (match.token->left_strip) match.begin = std::max(before_white_space(text, match.begin), done);
    if (match.token->right_strip) match.end = after_white_space(text, match.end);
    if (done < match.begin) between(done, match.begin);
    token(match.token->id);
    done = match.end;
  }
  if (done < text.size()) between(done, text.size());
}

}  // namespace trireme::tokenizer::hf

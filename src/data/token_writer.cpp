// SPDX-License-Identifier: Apache-2.0
#include "data/token_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "data/megatron_index.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/make_directories.hpp"
#include "trireme/data/token_file.hpp"

namespace trireme::data {
namespace {

/// An index counts a sequence's tokens in int32: a longer document becomes several sequences.
constexpr std::int64_t max_sequence_tokens = std::int64_t{1} << 30;

bool is_index(const std::string& output) { return output.ends_with(".idx"); }

std::string tokens_path(const std::string& output) {
  if (is_index(output)) return output.substr(0, output.size() - 4) + ".bin";
  const std::string index = output.ends_with(".bin") ? output.substr(0, output.size() - 4) + ".idx" : output + ".idx";
  std::error_code error;
  if (std::filesystem::exists(index, error)) {
    throw DataError(fmt::format(
        "next to {} is {}, so the raw tokens would be taken for a Megatron file; write to {}, choose another "
        "name, or remove that index",
        output, index, index));
  }
  return output;
}

const std::string& with_its_directory(const std::string& path) {
  io::make_directory_of(path);
  return path;
}

/// Narrows tokens to the file's type and writes them.
template <class Stored>
void write_as(HashedFile& file, std::span<const std::int32_t> tokens) {
  std::array<Stored, 4096> stored;
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(tokens.size(), stored.size()));
    std::ranges::transform(part, stored.begin(), [](std::int32_t token) { return static_cast<Stored>(token); });
    file.write({reinterpret_cast<const char*>(stored.data()), part.size() * sizeof(Stored)});
    tokens = tokens.subspan(part.size());
  }
}

}  // namespace

TokenWriter::TokenWriter(const std::string& output, std::int64_t vocab_size, bool masked)
    : vocab_size_(vocab_size),
      type_(is_index(output) ? megatron_token_type(vocab_size) : raw_token_type(vocab_size)),
      index_path_(is_index(output) ? std::optional(output) : std::nullopt),
      tokens_file_(with_its_directory(tokens_path(output))),
      ends_(ends_path(tokens_file_.path())) {
  if (masked) mask_.emplace(mask_path(tokens_file_.path()));
}

void TokenWriter::append(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> counts) {
  invariant(!mask_ || counts.size() == tokens.size(), "a mask has a byte for each token");
  if (mask_) mask_->write({reinterpret_cast<const char*>(counts.data()), counts.size()});
  targets_ += mask_ ? std::ranges::count(counts, 1) : static_cast<std::int64_t>(tokens.size());
  for (const std::int32_t token : tokens)
    invariant(token >= 0 && token < vocab_size_, "a token lies within the vocabulary");
  while (!tokens.empty()) {
    const auto part =
        tokens.first(std::min(tokens.size(), static_cast<std::size_t>(max_sequence_tokens - sequence_tokens_)));
    if (type_ == TokenType::uint16) {
      write_as<std::uint16_t>(tokens_file_, part);
    } else {
      write_as<std::uint32_t>(tokens_file_, part);  // the same bytes as int32
    }
    sequence_tokens_ += static_cast<std::int64_t>(part.size());
    if (sequence_tokens_ == max_sequence_tokens) end_sequence();
    tokens = tokens.subspan(part.size());
  }
}

void TokenWriter::end_sequence() {
  tokens_ += sequence_tokens_;
  lengths_.push_back(static_cast<std::int32_t>(sequence_tokens_));
  sequence_tokens_ = 0;
}

void TokenWriter::end_document(std::int64_t text_bytes) {
  const bool has_sequence = static_cast<std::int64_t>(lengths_.size()) > document_starts_.back();
  if (sequence_tokens_ > 0 || !has_sequence) end_sequence();
  document_starts_.push_back(static_cast<std::int64_t>(lengths_.size()));
  text_bytes_ += text_bytes;
  ++documents_;
  const std::array<std::int64_t, 2> end = {tokens_, text_bytes_};
  ends_.write({reinterpret_cast<const char*>(end.data()), sizeof(end)});
}

/// Removes a file of older tokens.
void TokenWriter::remove_old(const std::string& path) const {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error)
    throw WriteError(fmt::format("cannot remove {}, which belongs to older tokens: {}", path, error.message()));
}

/// Before the tokens: a kill in between leaves tokens whose mask does not fit them.
void TokenWriter::publish_mask() {
  if (!mask_) return remove_old(mask_path(tokens_file_.path()));
  mask_->file().close();
  mask_->file().publish();
}

void TokenWriter::finish(Sidecar origin) {
  if (sequence_tokens_ > 0) end_document();
  tokens_file_.file().close();
  ends_.file().close();
  std::optional<io::AtomicFile> index;
  if (index_path_) {
    index.emplace(*index_path_);
    index->write(megatron_index_bytes(type_, lengths_, document_starts_));
    index->close();
  }
  origin.dtype = type_ == TokenType::uint16 ? "uint16" : "uint32";
  origin.tokens = tokens_;
  origin.documents = documents_;
  origin.targets = targets_;
  origin.text_bytes = text_bytes_;
  origin.tokens_xxh3 = tokens_file_.xxh3();
  origin.ends_xxh3 = ends_.xxh3();
  origin.mask_xxh3 = mask_ ? mask_->xxh3() : "";
  io::AtomicFile sidecar(sidecar_path(tokens_file_.path()));
  sidecar.write(to_json(origin));
  sidecar.close();
  // A kill in between leaves tokens without a sidecar, or an index that does not fit its .bin, which reading refuses.
  remove_old(sidecar.path());
  publish_mask();
  ends_.file().publish();
  tokens_file_.file().publish();
  if (index) index->publish();
  sidecar.publish();
}

}  // namespace trireme::data

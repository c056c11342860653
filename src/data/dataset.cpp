// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"

namespace trireme::data {

std::int64_t Dataset::samples_of(const TokenFile& file) const {
  return (file.tokens() - 1 + (tail_ == FileTail::padded ? seq_len_ - 1 : 0)) / seq_len_;
}

Dataset::Dataset(std::vector<TokenFile> files, std::int64_t seq_len, FileTail tail)
    : files_(std::move(files)), first_sample_{0}, seq_len_(seq_len), tail_(tail) {
  invariant(seq_len > 0 && !files_.empty(), "a dataset has files and a sequence length");
  for (const TokenFile& file : files_) first_sample_.push_back(samples() + samples_of(file));
  if (samples() == 0 && tail == FileTail::padded)
    throw DataError(fmt::format("token file {} has {} token{}, and a target needs 2; use more text",
                                files_.front().path(), files_.front().tokens(),
                                files_.front().tokens() == 1 ? "" : "s"));
  if (samples() == 0) {
    const auto longest = std::ranges::max_element(files_, {}, &TokenFile::tokens);
    throw DataError(fmt::format(
        "token file {} has {} tokens, too few for one sample of data.seq_len + 1 = {}{}; use more text or set "
        "data.seq_len to at most {}",
        longest->path(), longest->tokens(), seq_len + 1,
        files_.size() > 1 ? fmt::format(" (the longest of {} files)", files_.size()) : "",
        std::max<std::int64_t>(1, longest->tokens() - 1)));
  }
  for (const TokenFile& file : files_) {
    if (samples_of(file) > 0) continue;
    log::warning(fmt::format("token file {} is not used: its {} tokens are fewer than data.seq_len + 1 = {}",
                             file.path(), file.tokens(), seq_len + 1));
  }
}

std::int64_t Dataset::tokens() const noexcept {
  std::int64_t sum = 0;
  for (const TokenFile& file : files_) sum += file.tokens();
  return sum;
}

Dataset::Place Dataset::place_of(std::int64_t sample) const {
  invariant(sample >= 0 && sample < samples(), "a sample lies within its dataset");
  const auto after = std::ranges::upper_bound(first_sample_, sample);
  const auto file = static_cast<std::size_t>(after - first_sample_.begin()) - 1;
  return {.file = files_[file], .first = (sample - first_sample_[file]) * seq_len_};
}

void Dataset::read(std::int64_t sample, std::span<std::int32_t> out) const {
  invariant(static_cast<std::int64_t>(out.size()) == seq_len_ + 1, "a sample is seq_len + 1 tokens");
  const Place place = place_of(sample);
  const auto held = static_cast<std::size_t>(std::min(seq_len_ + 1, place.file.tokens() - place.first));
  place.file.read(place.first, out.first(held));
  std::ranges::fill(out.subspan(held), 0);
}

bool Dataset::masked() const noexcept { return std::ranges::any_of(files_, &TokenFile::masked); }

bool Dataset::padded() const noexcept {
  return tail_ == FileTail::padded &&
         std::ranges::any_of(files_, [&](const TokenFile& file) { return (file.tokens() - 1) % seq_len_ != 0; });
}

void Dataset::read_mask(std::int64_t sample, std::span<std::uint8_t> out) const {
  invariant(static_cast<std::int64_t>(out.size()) == seq_len_, "a sample has seq_len targets");
  const Place place = place_of(sample);
  const auto held = static_cast<std::size_t>(std::min(seq_len_, place.file.tokens() - 1 - place.first));
  if (place.file.masked())
    place.file.read_mask(place.first + 1, out.first(held));
  else
    std::ranges::fill(out.first(held), std::uint8_t{1});
  std::ranges::fill(out.subspan(held), std::uint8_t{0});
}

void Dataset::read_document_begins(std::int64_t sample, std::span<const std::int32_t> tokens,
                                   std::optional<std::int64_t> document_end, std::span<std::int32_t> out) const {
  invariant(static_cast<std::int64_t>(out.size()) == seq_len_ && tokens.size() == out.size() + 1,
            "a sample has seq_len inputs");
  const Place place = place_of(sample);
  if (place.file.has_document_ends()) {
    const auto held = static_cast<std::size_t>(std::min(seq_len_, place.file.tokens() - place.first));
    place.file.read_document_begins(place.first, out.first(held));
    std::ranges::fill(out.subspan(held), static_cast<std::int32_t>(held));  // padding
    return;
  }
  invariant(document_end.has_value(), "documents have an end");
  std::int32_t begin = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = begin;
    if (tokens[i] == *document_end) begin = static_cast<std::int32_t>(i) + 1;
  }
}

std::vector<Dataset> open_datasets(const std::vector<config::TokenSource>& sources, bool weighted,
                                   config::TokenFormat format, std::int64_t seq_len, std::int64_t vocab_size,
                                   std::span<const TokenPlace> places, FileTail tail) {
  invariant(places.empty() || places.size() == sources.size(), "every source has its place");
  std::vector<Dataset> datasets;
  std::vector<TokenFile> files;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    files.emplace_back(places.empty() ? find_token_file(sources[i].path, format) : places[i], format, vocab_size);
    if (!weighted) continue;
    datasets.emplace_back(std::move(files), seq_len, tail);
    files.clear();
  }
  if (!files.empty()) datasets.emplace_back(std::move(files), seq_len, tail);
  return datasets;
}

}  // namespace trireme::data

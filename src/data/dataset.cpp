// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/data/document_checks.hpp"

namespace trireme::data {
namespace {

constexpr std::size_t kept_windows = 256;  ///< of a list of sources: 25 MB

}  // namespace

std::int64_t Dataset::samples_of(std::size_t file) const {
  if (packed_) return packed_->plans()[file].counts.rows;
  return (files_[file].tokens() - 1 + (tail_ == FileTail::padded ? seq_len_ - 1 : 0)) / seq_len_;
}

void Dataset::count_samples() {
  invariant(seq_len_ > 0 && !files_.empty(), "a dataset has files and a sequence length");
  for (std::size_t i = 0; i < files_.size(); ++i) first_sample_.push_back(samples() + samples_of(i));
}

Dataset::Dataset(std::vector<TokenFile> files, std::int64_t seq_len, FileTail tail)
    : files_(std::move(files)), first_sample_{0}, seq_len_(seq_len), tail_(tail) {
  count_samples();
  if (samples() == 0) refuse_few_tokens();
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (samples_of(i) > 0) continue;
    log::warning(fmt::format("token file {} is not used: its {} tokens are fewer than data.seq_len + 1 = {}",
                             files_[i].path(), files_[i].tokens(), seq_len + 1));
  }
}

Dataset::Dataset(std::vector<TokenFile> files, std::int64_t seq_len, std::vector<PackingPlan> plans,
                 std::size_t most_windows)
    : files_(std::move(files)),
      first_sample_{0},
      seq_len_(seq_len),
      tail_(FileTail::padded),
      packed_(std::make_unique<const PackedRows>(std::move(plans), seq_len, most_windows)) {
  invariant(packed_->plans().size() == files_.size(), "every packed file has its plan");
  count_samples();
  if (samples() == 0)
    throw DataError(
        fmt::format("token file {}: none of its {} documents has 2 tokens, of which one is a target; use "
                    "more text",
                    files_.front().path(), files_.front().documents()));
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (samples_of(i) == 0)
      log::warning(fmt::format("token file {} is not used: none of its {} documents has 2 tokens", files_[i].path(),
                               files_[i].documents()));
}

void Dataset::refuse_few_tokens() const {
  if (tail_ == FileTail::padded)
    throw DataError(fmt::format("token file {} has {} token{}, and a target needs 2; use more text",
                                files_.front().path(), files_.front().tokens(),
                                files_.front().tokens() == 1 ? "" : "s"));
  const auto longest = std::ranges::max_element(files_, {}, &TokenFile::tokens);
  throw DataError(fmt::format(
      "token file {} has {} tokens, too few for one sample of data.seq_len + 1 = {}{}; use more text or set "
      "data.seq_len to at most {}",
      longest->path(), longest->tokens(), seq_len_ + 1,
      files_.size() > 1 ? fmt::format(" (the longest of {} files)", files_.size()) : "",
      std::max<std::int64_t>(1, longest->tokens() - 1)));
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
  const std::int64_t within = sample - first_sample_[file];
  return {.file = files_[file], .number = file, .sample = within, .first = within * seq_len_};
}

void Dataset::read(std::int64_t sample, std::span<std::int32_t> out) const {
  invariant(static_cast<std::int64_t>(out.size()) == seq_len_ + 1, "a sample is seq_len + 1 tokens");
  const Place place = place_of(sample);
  if (packed_) {
    std::span<std::int32_t> rest = out;
    for (const TokenRange& range : packed_->row(place.file, place.number, place.sample)) {
      const auto tokens = static_cast<std::size_t>(range.tokens);
      place.file.read(range.begin, rest.first(tokens));
      rest = rest.subspan(tokens);
    }
    std::ranges::fill(rest, place.file.padding());
    return;
  }
  const auto held = static_cast<std::size_t>(std::min(seq_len_ + 1, place.file.tokens() - place.first));
  place.file.read(place.first, out.first(held));
  std::ranges::fill(out.subspan(held), 0);
}

std::optional<PackingCounts> Dataset::packing() const {
  if (!packed_) return std::nullopt;
  PackingCounts counts;
  for (const PackingPlan& plan : packed_->plans()) counts += plan.counts;
  return counts;
}

std::int64_t Dataset::inputs_of_documents(std::int64_t sample) const {
  const Place place = place_of(sample);
  if (!packed_) return seq_len_;
  std::int64_t tokens = 0;
  for (const TokenRange& range : packed_->row(place.file, place.number, place.sample)) tokens += range.tokens;
  return std::min(tokens, seq_len_);
}

bool Dataset::masked() const noexcept { return std::ranges::any_of(files_, &TokenFile::masked); }

bool Dataset::padded() const noexcept {
  if (packed_) return true;
  return tail_ == FileTail::padded &&
         std::ranges::any_of(files_, [&](const TokenFile& file) { return (file.tokens() - 1) % seq_len_ != 0; });
}

void Dataset::read_mask(std::int64_t sample, std::span<std::uint8_t> out) const {
  invariant(static_cast<std::int64_t>(out.size()) == seq_len_, "a sample has seq_len targets");
  const Place place = place_of(sample);
  const auto read_targets = [&](std::int64_t first, std::span<std::uint8_t> targets) {
    if (place.file.masked())
      place.file.read_mask(first, targets);
    else
      std::ranges::fill(targets, std::uint8_t{1});
  };
  if (packed_) {  // the first token of a document is no target
    std::ranges::fill(out, std::uint8_t{0});
    std::int64_t at = 0;
    for (const TokenRange& range : packed_->row(place.file, place.number, place.sample)) {
      read_targets(range.begin + 1,
                   out.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(range.tokens - 1)));
      at += range.tokens;
    }
    return;
  }
  const auto held = static_cast<std::size_t>(std::min(seq_len_, place.file.tokens() - 1 - place.first));
  read_targets(place.first + 1, out.first(held));
  std::ranges::fill(out.subspan(held), std::uint8_t{0});
}

void Dataset::read_document_begins(std::int64_t sample, std::span<const std::int32_t> tokens,
                                   std::optional<std::int64_t> document_end, std::span<std::int32_t> out) const {
  invariant(static_cast<std::int64_t>(out.size()) == seq_len_ && tokens.size() == out.size() + 1,
            "a sample has seq_len inputs");
  const Place place = place_of(sample);
  if (packed_) {
    std::int64_t at = 0;
    for (const TokenRange& range : packed_->row(place.file, place.number, place.sample)) {
      const std::int64_t end = std::min(at + range.tokens, seq_len_);
      std::fill(out.begin() + at, out.begin() + end, static_cast<std::int32_t>(at));
      at = end;
    }
    std::fill(out.begin() + at, out.end(), static_cast<std::int32_t>(at));  // padding
    return;
  }
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

std::vector<PackingPlan> plan_packing(const std::vector<config::TokenSource>& sources, config::TokenFormat format,
                                      std::int64_t seq_len, std::int64_t vocab_size,
                                      std::span<const TokenPlace> places) {
  invariant(places.empty() || places.size() == sources.size(), "every source has its place");
  std::vector<PackingPlan> plans;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const TokenFile file(places.empty() ? find_token_file(sources[i].path, format) : places[i], format, vocab_size);
    require_known_documents(file);
    plans.push_back(plan_packing(file, seq_len));
  }
  return plans;
}

std::vector<Dataset> open_datasets(const std::vector<config::TokenSource>& sources, bool weighted,
                                   config::TokenFormat format, std::int64_t seq_len, std::int64_t vocab_size,
                                   std::span<const TokenPlace> places, FileTail tail,
                                   std::span<const PackingPlan> plans) {
  invariant(places.empty() || places.size() == sources.size(), "every source has its place");
  invariant(plans.empty() || plans.size() == sources.size(), "every source has its plan");
  const std::size_t windows = std::max<std::size_t>(kept_windows / (weighted ? sources.size() : 1), 2);
  std::vector<Dataset> datasets;
  std::vector<TokenFile> files;
  const auto add = [&](std::size_t end) {
    if (plans.empty()) {
      datasets.emplace_back(std::move(files), seq_len, tail);
    } else {
      const auto of_files = plans.subspan(end - files.size(), files.size());
      datasets.emplace_back(std::move(files), seq_len, std::vector<PackingPlan>(of_files.begin(), of_files.end()),
                            windows);
    }
    files.clear();
  };
  for (std::size_t i = 0; i < sources.size(); ++i) {
    files.emplace_back(places.empty() ? find_token_file(sources[i].path, format) : places[i], format, vocab_size);
    if (weighted) add(i + 1);
  }
  if (!files.empty()) add(sources.size());
  return datasets;
}

}  // namespace trireme::data

// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/packing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <tuple>

#include "trireme/base/error.hpp"
#include "trireme/base/io/concurrently.hpp"

namespace trireme::data {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::int64_t windows_of(std::int64_t documents) { return (documents + packing_window - 1) / packing_window; }

PackedWindow pack_window(const TokenFile& file, std::int64_t window, std::int64_t seq_len) {
  const std::int64_t first = window * packing_window;
  std::vector<std::int64_t> ends(static_cast<std::size_t>(std::min(packing_window, file.documents() - first)));
  std::int64_t begin = 0;
  if (first > 0) file.read_document_ends(first - 1, std::span(&begin, 1));
  file.read_document_ends(first, ends);
  if (ends.front() < begin)
    throw DataError(fmt::format("{}: document {} ends at token {}, the one before at {}; tokenize again", file.path(),
                                first, ends.front(), begin));
  return {begin, ends, seq_len};
}

/// Best-fit decreasing: the row of each piece. Rows are numbered as they are opened.
std::vector<std::int32_t> rows_of(std::span<const TokenRange> pieces, std::int64_t capacity) {
  std::vector<std::int32_t> order(pieces.size()), rows(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  const auto tokens_of = [&](std::int32_t piece) { return pieces[static_cast<std::size_t>(piece)].tokens; };
  std::ranges::stable_sort(order, std::ranges::greater{}, tokens_of);
  std::set<std::pair<std::int64_t, std::int32_t>> open;  // space, row
  std::int32_t opened = 0;
  for (const std::int32_t piece : order) {
    std::int64_t space = capacity;
    std::int32_t row = opened;
    if (const auto best = open.lower_bound({tokens_of(piece), 0}); best != open.end()) {
      std::tie(space, row) = *best;
      open.erase(best);
    } else {
      ++opened;
    }
    rows[static_cast<std::size_t>(piece)] = row;
    constexpr std::int64_t least_piece = 2;
    if (space -= tokens_of(piece); space >= least_piece) open.emplace(space, row);
  }
  return rows;
}

}  // namespace

PackingCounts& PackingCounts::operator+=(const PackingCounts& other) {
  documents += other.documents;
  rows += other.rows;
  tokens += other.tokens;
  padding += other.padding;
  cut += other.cut;
  without_target += other.without_target;
  concatenated_cut += other.concatenated_cut;
  return *this;
}

double PackingCounts::padding_share() const { return share(padding, padding + tokens); }
double PackingCounts::cut_share() const { return share(cut, documents); }
double PackingCounts::concatenated_cut_share() const { return share(concatenated_cut, documents); }

PackedWindow::PackedWindow(std::int64_t begin, std::span<const std::int64_t> ends, std::int64_t seq_len)
    : seq_len_(seq_len) {
  std::vector<TokenRange> pieces;
  std::int64_t full_rows = 0;
  for (const std::int64_t end : ends) {
    ++counts_.documents;
    const std::int64_t tokens = end - begin;
    if (tokens < 2) {
      ++counts_.without_target;
    } else {
      // The targets of a document, which begin + 1 has first, are divided among samples of seq_len targets.
      counts_.concatenated_cut += begin / seq_len != (end - 2) / seq_len ? 1 : 0;
      const std::int64_t full = (tokens - 2) / seq_len;
      if (full > 0) {
        ++counts_.cut;
        segments_.push_back({.begin = begin, .rows = full});
        full_rows += full;
      }
      pieces.push_back({.begin = begin + full * seq_len, .tokens = tokens - full * seq_len});
    }
    begin = end;
  }
  counts_.tokens = full_rows * (seq_len + 1);
  pack(pieces);
  std::ranges::sort(segments_, {}, &Segment::begin);
  for (Segment& segment : segments_) {
    segment.first_row = counts_.rows;
    counts_.rows += segment.rows;
  }
  counts_.padding = counts_.rows * (seq_len + 1) - counts_.tokens;
}

void PackedWindow::pack(std::span<const TokenRange> pieces) {
  const std::vector<std::int32_t> rows = rows_of(pieces, seq_len_ + 1);
  std::vector<std::int32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::int32_t piece) { return rows[static_cast<std::size_t>(piece)]; });
  ranges_.reserve(pieces.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto piece = static_cast<std::size_t>(order[i]);
    if (i == 0 || rows[piece] != rows[static_cast<std::size_t>(order[i - 1])])
      segments_.push_back({.begin = pieces[piece].begin, .first_range = static_cast<std::int32_t>(i)});
    ++segments_.back().ranges;
    ranges_.push_back(pieces[piece]);
    counts_.tokens += pieces[piece].tokens;
  }
}

std::vector<TokenRange> PackedWindow::row(std::int64_t row) const {
  invariant(row >= 0 && row < counts_.rows, "a row lies within its window");
  const Segment& segment = *(std::ranges::upper_bound(segments_, row, {}, &Segment::first_row) - 1);
  if (segment.ranges == 0)
    return {{.begin = segment.begin + (row - segment.first_row) * seq_len_, .tokens = seq_len_ + 1}};
  const auto first = ranges_.begin() + segment.first_range;
  return {first, first + segment.ranges};
}

PackingPlan plan_packing(const TokenFile& file, std::int64_t seq_len) {
  const auto windows = static_cast<std::size_t>(windows_of(file.documents()));
  PackingPlan plan;
  plan.first_rows.resize(windows + 1);
  std::mutex mutex;
  io::concurrently(windows, [&](std::size_t window) {
    const PackingCounts counts = pack_window(file, static_cast<std::int64_t>(window), seq_len).counts();
    plan.first_rows[window + 1] = counts.rows;
    const std::lock_guard lock(mutex);
    plan.counts += counts;
  });
  std::partial_sum(plan.first_rows.begin(), plan.first_rows.end(), plan.first_rows.begin());
  return plan;
}

std::string encode(std::span<const PackingPlan> plans) {
  std::vector<std::int64_t> words;
  for (const PackingPlan& plan : plans) {
    const PackingCounts& c = plan.counts;
    words.insert(words.end(), {std::ssize(plan.first_rows), c.documents, c.rows, c.tokens, c.padding, c.cut,
                               c.without_target, c.concatenated_cut});
    words.insert(words.end(), plan.first_rows.begin(), plan.first_rows.end());
  }
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(std::int64_t)};
}

std::vector<PackingPlan> decode_plans(const std::string& text) {
  std::vector<std::int64_t> words(text.size() / sizeof(std::int64_t));
  std::memcpy(words.data(), text.data(), words.size() * sizeof(std::int64_t));
  std::vector<PackingPlan> plans;
  for (auto at = words.begin(); at != words.end();) {
    PackingPlan& plan = plans.emplace_back();
    const std::int64_t size = *at++;
    PackingCounts& c = plan.counts;
    for (std::int64_t* count :
         {&c.documents, &c.rows, &c.tokens, &c.padding, &c.cut, &c.without_target, &c.concatenated_cut})
      *count = *at++;
    plan.first_rows.assign(at, at + size);
    at += size;
  }
  return plans;
}

PackedRows::PackedRows(std::vector<PackingPlan> plans, std::int64_t seq_len, std::size_t most_windows)
    : plans_(std::move(plans)), seq_len_(seq_len), most_windows_(most_windows) {
  invariant(most_windows > 0, "a window is kept while its rows are read");
}

std::shared_ptr<const PackedWindow> PackedRows::window(const TokenFile& file, const Key& key) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = kept_.find(key); found != kept_.end()) {
      found->second.used = ++uses_;
      return found->second.window;
    }
  }
  auto packed = std::make_shared<const PackedWindow>(pack_window(file, key.second, seq_len_));
  const auto& first_rows = plans_[key.first].first_rows;
  const auto window = static_cast<std::size_t>(key.second);
  if (packed->counts().rows != first_rows[window + 1] - first_rows[window])
    throw DataError(fmt::format(
        "{}: its document ends are not those of the start of the run: documents {} to {} fill {} rows instead of {}; "
        "do not change token files while a run reads them",
        file.path(), key.second * packing_window, key.second * packing_window + packed->counts().documents - 1,
        packed->counts().rows, first_rows[window + 1] - first_rows[window]));
  const std::lock_guard lock(mutex_);
  if (kept_.size() >= most_windows_)
    kept_.erase(std::ranges::min_element(kept_, {}, [](const auto& one) { return one.second.used; }));
  kept_[key] = {.window = packed, .used = ++uses_};
  return packed;
}

std::vector<TokenRange> PackedRows::row(const TokenFile& file, std::size_t number, std::int64_t row) const {
  const auto& first_rows = plans_.at(number).first_rows;
  const auto window = std::ranges::upper_bound(first_rows, row) - first_rows.begin() - 1;
  return this->window(file, {number, window})->row(row - first_rows[static_cast<std::size_t>(window)]);
}

}  // namespace trireme::data

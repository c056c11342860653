// SPDX-License-Identifier: Apache-2.0
#include "data/document_ends.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::data {
namespace {

constexpr std::int64_t block_documents = 512;

/// FILE.ends: the end in tokens and the end in text bytes of each document.
class EndsFile final : public DocumentEnds {
 public:
  EndsFile(const std::string& path, std::int64_t documents) : DocumentEnds(documents), file_(path, "document ends") {
    constexpr std::int64_t entry_bytes = 2 * sizeof(std::int64_t);
    if (file_.size() / entry_bytes != documents || file_.size() % entry_bytes != 0)
      throw DataError(
          fmt::format("{} has {} bytes, but its sidecar counts {} documents, which take {}: they do not "
                      "belong together; tokenize again",
                      file_.name(), file_.size(), documents, documents * entry_bytes));
  }

 private:
  void load(std::int64_t document, std::span<std::int64_t> out) const override {
    std::vector<std::array<std::int64_t, 2>> entries(out.size());
    file_.read_at(document * static_cast<std::int64_t>(sizeof(entries[0])), std::as_writable_bytes(std::span(entries)));
    std::ranges::transform(entries, out.begin(), [](const auto& entry) { return entry[0]; });
  }
  [[nodiscard]] std::string name() const override { return file_.name(); }

  io::InputFile file_;
};

/// A Megatron index: where the sequence begins that follows each document's last one.
class IndexEnds final : public DocumentEnds {
 public:
  IndexEnds(const std::string& path, const MegatronIndex& index)
      : DocumentEnds(index.documents), file_(path, "token index"), index_(index) {}

 private:
  void load(std::int64_t document, std::span<std::int64_t> out) const override {
    const MegatronIndexPlaces at = places_of(index_);
    file_.read_at(at.document_starts + 8 * (document + 1), std::as_writable_bytes(out));
    constexpr std::int64_t window_entries = 4096;
    std::vector<std::int64_t> window;
    std::int64_t begin = 0;  // of the window
    for (std::int64_t& end : out) {
      if (end < 0 || end > index_.sequences)
        throw DataError(fmt::format("{}: a document ends at sequence {} of {}", name(), end, index_.sequences));
      if (end == index_.sequences) {
        end = index_.tokens;
        continue;
      }
      if (end < begin || end >= begin + static_cast<std::int64_t>(window.size())) {
        begin = end;
        window.resize(static_cast<std::size_t>(std::min(window_entries, index_.sequences - begin)));
        file_.read_at(at.offsets + 8 * begin, std::as_writable_bytes(std::span(window)));
      }
      end = window[static_cast<std::size_t>(end - begin)] / size_of(index_.type);
    }
  }
  [[nodiscard]] std::string name() const override { return file_.name(); }

  io::InputFile file_;
  MegatronIndex index_;
};

}  // namespace

void DocumentEnds::read(std::int64_t document, std::span<std::int64_t> out) const {
  load(document, out);
  if (!std::ranges::is_sorted(out) || (!out.empty() && out.front() < 0))
    throw DataError(fmt::format("{}: the ends of documents {} to {} do not rise; tokenize again", name(), document,
                                document + static_cast<std::int64_t>(out.size()) - 1));
}

std::int64_t DocumentEnds::last_end_of(std::int64_t block) const {
  constexpr std::size_t most_kept = 4096;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = last_ends_.find(block); found != last_ends_.end()) return found->second;
  }
  std::int64_t end = 0;
  read(std::min((block + 1) * block_documents, documents_) - 1, std::span(&end, 1));
  const std::lock_guard lock(mutex_);
  if (last_ends_.size() < most_kept) last_ends_.emplace(block, end);
  return end;
}

/// The first block with an end after `token`, or the number of blocks.
std::int64_t DocumentEnds::block_of(std::int64_t token) const {
  std::int64_t low = 0, high = (documents_ + block_documents - 1) / block_documents;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (last_end_of(middle) > token) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

void DocumentEnds::begins(std::int64_t first, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  std::int64_t filled = 0, begin = 0;
  std::vector<std::int64_t> ends;
  const auto fill_to = [&](std::int64_t end) {
    std::fill(out.begin() + filled, out.begin() + end, static_cast<std::int32_t>(begin));
    filled = end;
  };
  for (std::int64_t document = block_of(first) * block_documents; filled < count && document < documents_;
       document += block_documents) {
    ends.resize(static_cast<std::size_t>(std::min(block_documents, documents_ - document)));
    read(document, ends);
    for (auto end = std::ranges::upper_bound(ends, first); end != ends.end() && filled < count; ++end) {
      fill_to(std::min(*end - first, count));
      begin = *end - first;
    }
  }
  fill_to(count);
}

std::unique_ptr<DocumentEnds> open_ends_file(const std::string& path, std::int64_t documents) {
  return std::make_unique<EndsFile>(path, documents);
}

std::unique_ptr<DocumentEnds> open_index_ends(const std::string& index_path, const MegatronIndex& index) {
  return std::make_unique<IndexEnds>(index_path, index);
}

void check_same_ends(const std::string& path, const DocumentEnds& ends, const DocumentEnds& index) {
  const auto refuse = [&](const std::string& what) {
    throw DataError(fmt::format(
        "token file {}: its .ends and its .idx differ: {}; tokenize again, or remove {}.meta and {}.ends to take the "
        "documents of the index",
        path, what, path, path));
  };
  if (ends.documents() != index.documents())
    refuse(fmt::format("{} and {} documents", ends.documents(), index.documents()));
  constexpr std::int64_t most_blocks = 64;
  const std::int64_t blocks = (ends.documents() + block_documents - 1) / block_documents;
  const std::int64_t compared = std::min(blocks, most_blocks);
  std::vector<std::int64_t> mine, others;
  for (std::int64_t i = 0; i < compared; ++i) {
    const std::int64_t block = compared == 1 ? 0 : i * (blocks - 1) / (compared - 1);
    const std::int64_t document = block * block_documents;
    mine.resize(static_cast<std::size_t>(std::min(block_documents, ends.documents() - document)));
    others.resize(mine.size());
    ends.read(document, mine);
    index.read(document, others);
    const auto [a, b] = std::ranges::mismatch(mine, others);
    if (a != mine.end())
      refuse(fmt::format("document {} ends at token {} and {}", document + (a - mine.begin()), *a, *b));
  }
}

}  // namespace trireme::data

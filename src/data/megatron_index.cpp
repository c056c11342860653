// SPDX-License-Identifier: Apache-2.0
#include "data/megatron_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/base/io/input_file.hpp"

namespace trireme::data {
namespace {

constexpr std::array<char, 9> magic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::int64_t header_bytes = 34;
/// Entries read at a time: 512 KiB of int64.
constexpr std::int64_t chunk_entries = 65536;

std::optional<TokenType> type_of_code(std::uint8_t code) {
  switch (code) {
    case 1: return TokenType::uint8;
    case 2: return TokenType::int8;
    case 3: return TokenType::int16;
    case 4: return TokenType::int32;
    case 5: return TokenType::int64;
    case 8: return TokenType::uint16;
    default: return std::nullopt;
  }
}

std::uint8_t code_of_type(TokenType type) {
  for (std::uint8_t code = 1; code <= 8; ++code) {
    if (type_of_code(code) == type) return code;
  }
  throw BugError(fmt::format("Megatron has no type code for {}", to_text(type)));
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

/// Reads an array of the file in chunks, entry by entry.
template <class T>
class ArrayReader {
 public:
  ArrayReader(const io::InputFile& file, std::int64_t begin, std::int64_t count)
      : file_(file), begin_(begin), count_(count) {}

  T next() {
    if (at_ == chunk_.size()) {
      chunk_.resize(static_cast<std::size_t>(std::min(chunk_entries, count_ - read_)));
      file_.read_at(begin_ + read_ * static_cast<std::int64_t>(sizeof(T)), std::as_writable_bytes(std::span(chunk_)));
      read_ += static_cast<std::int64_t>(chunk_.size());
      at_ = 0;
    }
    return chunk_[at_++];
  }

 private:
  const io::InputFile& file_;
  std::int64_t begin_;
  std::int64_t count_;
  std::int64_t read_ = 0;
  std::vector<T> chunk_;
  std::size_t at_ = 0;
};

[[noreturn]] void damaged(const io::InputFile& file, const std::string& what) {
  throw DataError(
      fmt::format("{}: {}; make it again with Megatron's preprocess_data.py or `trireme tokenize`", file.name(), what));
}

struct Header {
  TokenType type;
  std::int64_t sequences;
  std::int64_t entries;  ///< of the document array: documents + 1
};

Header read_header(const io::InputFile& file) {
  if (file.size() < header_bytes) damaged(file, fmt::format("{} bytes are less than the header's 34", file.size()));
  std::array<std::byte, header_bytes> bytes;
  file.read_at(0, bytes);
  if (std::memcmp(bytes.data(), "TNTIDX\0", 8) == 0)
    damaged(file,
            "an index of the format TNTIDX (--dataset-impl lazy or cached of fairseq and of Megatron-LM before 2021), "
            "where only MMIDIDX (--dataset-impl mmap) is read");
  if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) damaged(file, "bad magic, expected MMIDIDX");
  const auto version = load<std::uint64_t>(&bytes[9]);
  if (version != 1) damaged(file, fmt::format("version {}, where only 1 is known", version));
  const auto code = load<std::uint8_t>(&bytes[17]);
  const auto type = type_of_code(code);
  if (!type)
    damaged(
        file,
        fmt::format("type code {}, where tokens are 1 (uint8), 2 (int8), 3 (int16), 4 (int32), 5 (int64) or 8 (uint16)",
                    code));
  const auto sequences = load<std::uint64_t>(&bytes[18]);
  const auto entries = load<std::uint64_t>(&bytes[26]);
  const auto limit = static_cast<std::uint64_t>(file.size());  // keeps the sums below from overflowing
  const bool plausible = sequences <= limit / 12 && entries <= limit / 8;
  const std::uint64_t plain = plausible ? header_bytes + 12 * sequences + 8 * entries : 0;
  if (!plausible || (plain != limit && plain + sequences != limit)) {
    damaged(
        file,
        fmt::format(
            "{} bytes do not fit {} sequences and {} document entries (34 + 12 x sequences + 8 x entries): truncated?",
            file.size(), sequences, entries));
  }
  return {*type, static_cast<std::int64_t>(sequences), static_cast<std::int64_t>(entries)};
}

void check_documents(const io::InputFile& file, const Header& header) {
  ArrayReader<std::int64_t> starts(file, header_bytes + 12 * header.sequences, header.entries);
  std::int64_t previous = 0;
  for (std::int64_t i = 0; i < header.entries; ++i) {
    const std::int64_t start = starts.next();
    if ((i == 0 && start != 0) || start < previous || start > header.sequences) {
      damaged(file,
              fmt::format("document {} begins at sequence {}, after {} of {}", i, start, previous, header.sequences));
    }
    previous = start;
  }
  if (previous != header.sequences) {
    damaged(file, fmt::format("the last document ends at sequence {} of {}", previous, header.sequences));
  }
}

template <class T>
void append(std::vector<char>& bytes, T value) {
  const auto* begin = reinterpret_cast<const char*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof(T));
}

}  // namespace

MegatronIndex check_megatron_index(const std::string& path, std::int64_t bin_bytes) {
  const io::InputFile file(path, "token index");
  const Header header = read_header(file);
  MegatronIndex index{.type = header.type, .sequences = header.sequences, .documents = header.entries - 1};
  ArrayReader<std::int32_t> lengths(file, header_bytes, header.sequences);
  ArrayReader<std::int64_t> offsets(file, header_bytes + 4 * header.sequences, header.sequences);
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < header.sequences; ++i) {
    const std::int32_t length = lengths.next();
    const std::int64_t offset = offsets.next();
    if (length < 0) damaged(file, fmt::format("sequence {} has {} tokens", i, length));
    if (offset != end)
      damaged(file, fmt::format("sequence {} begins at byte {} where the one before ends at {}", i, offset, end));
    end += length * size_of(header.type);
    index.empty_sequences += length == 0 ? 1 : 0;
  }
  if (end != bin_bytes) {
    damaged(file, fmt::format("its sequences end at byte {} but its .bin has {} bytes ({})", end, bin_bytes,
                              bin_bytes < end ? "the .bin is truncated" : "the two do not belong together"));
  }
  check_documents(file, header);
  index.tokens = end / size_of(header.type);
  return index;
}

MegatronIndexPlaces places_of(const MegatronIndex& index) {
  return {.offsets = header_bytes + 4 * index.sequences, .document_starts = header_bytes + 12 * index.sequences};
}

std::vector<char> megatron_index_bytes(TokenType type, std::span<const std::int32_t> lengths,
                                       std::span<const std::int64_t> document_starts) {
  std::vector<char> bytes(magic.begin(), magic.end());
  append(bytes, std::uint64_t{1});
  append(bytes, code_of_type(type));
  append(bytes, static_cast<std::uint64_t>(lengths.size()));
  append(bytes, static_cast<std::uint64_t>(document_starts.size()));
  for (const std::int32_t length : lengths) append(bytes, length);
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths) {
    append(bytes, offset);
    offset += length * size_of(type);
  }
  for (const std::int64_t start : document_starts) append(bytes, start);
  return bytes;
}

}  // namespace trireme::data

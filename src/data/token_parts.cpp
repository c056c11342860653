// SPDX-License-Identifier: Apache-2.0
#include "data/token_parts.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>

#include "base/io/try_again.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/io/atomic_file.hpp"
#include "trireme/base/io/concurrently.hpp"
#include "trireme/base/io/input_file.hpp"
#include "trireme/base/sha256.hpp"

namespace trireme::data {
namespace {

constexpr std::string_view part_magic = "TRPARTS1";

/// Fixed part of an encoded document in a part.
struct RecordHeader {
  std::int64_t text_bytes = 0;
  std::uint64_t ids = 0;
  std::uint64_t counts = 0;
  std::uint32_t bad_bytes = 0;
  std::uint32_t flags = 0;  ///< 1: ends a document, 2: empty
};

/// End of a part, in front of `part_magic`: sizes of the texts before it and the hash of all bytes before them.
struct Footer {
  std::uint64_t records_bytes = 0;
  std::uint64_t records_xxh3 = 0;
  std::uint32_t name_bytes = 0;
  std::uint32_t hash_bytes = 0;
};
constexpr std::int64_t footer_bytes = sizeof(Footer) + part_magic.size();

template <class T>
std::span<const char> bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

struct stat status_of_file(const std::string& path) {
  struct stat status {};
  const int error = io::last_error([&] { return ::stat(path.c_str(), &status) == 0; });
  if (error != 0 || !S_ISREG(status.st_mode)) {
    const io::InputFile opened(path, "text file");  // throws with the reason
    throw DataError(
        fmt::format("{}: cannot be looked at: {}; check its file system", opened.name(), std::strerror(error)));
  }
  return status;
}

TextFile look_at(const std::string& path) {
  const struct stat status = status_of_file(path);
  constexpr std::int64_t nanoseconds = 1'000'000'000;
  return {.path = path,
          .bytes = status.st_size,
          .changed = static_cast<std::int64_t>(status.st_mtim.tv_sec) * nanoseconds + status.st_mtim.tv_nsec};
}

void require_unchanged(const TextFile& file) {
  const TextFile now = look_at(file.path);
  if (now.bytes == file.bytes && now.changed == file.changed) return;
  throw DataError(fmt::format(
      "text file {} was changed while it was tokenized; start again when no program writes to it", file.path));
}

/// The lines before byte `end` of a file, counted once.
class LinesBefore {
 public:
  LinesBefore(std::string path, std::int64_t end) : path_(std::move(path)), end_(end) {}

  std::int64_t operator()() {
    const std::lock_guard lock(mutex_);
    if (lines_ >= 0) return lines_;
    const io::InputFile file(path_, "text file");
    std::vector<char> chunk(std::size_t{1} << 18);
    lines_ = 0;
    for (std::int64_t at = 0; at < end_; at += static_cast<std::int64_t>(chunk.size())) {
      const auto part = std::span(chunk).first(
          static_cast<std::size_t>(std::min<std::int64_t>(static_cast<std::int64_t>(chunk.size()), end_ - at)));
      file.read_at(at, std::as_writable_bytes(part));
      lines_ += std::ranges::count(part, '\n');
    }
    // The first line of the unit may begin behind the byte `end`.
    if (end_ > 0 && chunk[static_cast<std::size_t>((end_ - 1) % static_cast<std::int64_t>(chunk.size()))] != '\n')
      ++lines_;
    return lines_;
  }

 private:
  std::string path_;
  std::int64_t end_;
  std::mutex mutex_;
  std::int64_t lines_ = -1;
};

/// Writes encoded documents into a part.
class PartWriter {
 public:
  PartWriter(const std::string& path, bool narrow) : file_(path), narrow_(narrow) {}

  void add(const Encoded& parts) {
    for (const text::EncodedPart& part : parts) {
      const RecordHeader header{.text_bytes = part.text_bytes,
                                .ids = part.ids.size(),
                                .counts = part.counts.size(),
                                .bad_bytes = static_cast<std::uint32_t>(part.bad.size()),
                                .flags = (part.ends ? 1u : 0u) | (part.empty ? 2u : 0u)};
      write(bytes_of(std::span(&header, 1)));
      if (narrow_) {
        narrowed_.assign(part.ids.begin(), part.ids.end());
        write(bytes_of(std::span<const std::uint16_t>(narrowed_)));
      } else {
        write(bytes_of(std::span(part.ids)));
      }
      write(bytes_of(std::span(part.counts)));
      write(part.bad);
    }
  }

  /// hashes: of the files, a line for each.
  void finish(const std::string& name, const std::string& hashes) {
    const Footer footer{.records_bytes = bytes_,
                        .records_xxh3 = hash_.value(),
                        .name_bytes = static_cast<std::uint32_t>(name.size()),
                        .hash_bytes = static_cast<std::uint32_t>(hashes.size())};
    file_.write(name);
    file_.write(hashes);
    file_.write(bytes_of(std::span(&footer, 1)));
    file_.write(part_magic);
    file_.close();
    file_.publish();
  }

 private:
  void write(std::span<const char> bytes) {
    hash_.add(bytes);
    file_.write(bytes);
    bytes_ += bytes.size();
  }

  io::AtomicFile file_;
  bool narrow_;
  Xxh3 hash_;
  std::uint64_t bytes_ = 0;
  std::vector<std::uint16_t> narrowed_;
};

/// Reads the part that PartWriter wrote.
class PartReader {
 public:
  explicit PartReader(const std::string& path) : file_(path, "part of a token cache"), buffer_(std::size_t{1} << 20) {
    if (file_.size() < footer_bytes) damaged();
    std::array<char, footer_bytes> end{};
    file_.read_at(file_.size() - footer_bytes, std::as_writable_bytes(std::span(end)));
    std::memcpy(&footer_, end.data(), sizeof(Footer));
    const std::string_view found(end.data() + sizeof(Footer), part_magic.size());
    const std::uint64_t texts = std::uint64_t{footer_.name_bytes} + footer_.hash_bytes;
    if (found != part_magic || footer_.records_bytes + texts + footer_bytes != static_cast<std::uint64_t>(file_.size()))
      damaged();
    name_ = text_at(footer_.records_bytes, footer_.name_bytes);
    file_hashes_ = text_at(footer_.records_bytes + footer_.name_bytes, footer_.hash_bytes);
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& file_hashes() const { return file_hashes_; }

  void read(bool narrow, const std::function<void(const Encoded&)>& take) {
    Encoded one(1);
    std::vector<std::uint16_t> narrowed;
    while (at_ < footer_.records_bytes) {
      RecordHeader header;
      fill(std::as_writable_bytes(std::span(&header, 1)));
      const std::uint64_t left = footer_.records_bytes - at_;
      if (header.ids > left || header.counts > left || header.bad_bytes > left) damaged();
      text::EncodedPart& part = one.front();
      part = {.ids = std::vector<std::int32_t>(header.ids),
              .counts = std::vector<std::uint8_t>(header.counts),
              .text_bytes = header.text_bytes,
              .ends = (header.flags & 1) != 0,
              .empty = (header.flags & 2) != 0,
              .bad = std::string(header.bad_bytes, '\0')};
      if (narrow) {
        narrowed.resize(header.ids);
        fill(std::as_writable_bytes(std::span(narrowed)));
        std::ranges::copy(narrowed, part.ids.begin());
      } else {
        fill(std::as_writable_bytes(std::span(part.ids)));
      }
      fill(std::as_writable_bytes(std::span(part.counts)));
      fill(std::as_writable_bytes(std::span(part.bad)));
      take(one);
    }
    if (hash_.value() != footer_.records_xxh3) damaged();
  }

 private:
  [[noreturn]] void damaged() const {
    throw DataError(fmt::format("{} is damaged; remove it and start again, which makes it again", file_.name()));
  }
  [[nodiscard]] std::string text_at(std::uint64_t offset, std::uint32_t bytes) const {
    std::string text(bytes, '\0');
    file_.read_at(static_cast<std::int64_t>(offset), std::as_writable_bytes(std::span(text)));
    return text;
  }
  void fill(std::span<std::byte> out) {
    if (out.size() > footer_.records_bytes - at_) damaged();
    at_ += out.size();
    for (std::span<std::byte> rest = out; !rest.empty();) {
      if (ready_.empty()) {
        const std::uint64_t left = footer_.records_bytes - read_;
        ready_ = std::span(buffer_).first(static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), left)));
        file_.read_at(static_cast<std::int64_t>(read_), ready_);
        hash_.add(std::span<const std::byte>(ready_));
        read_ += ready_.size();
      }
      const std::size_t bytes = std::min(ready_.size(), rest.size());
      std::ranges::copy(ready_.first(bytes), rest.begin());
      ready_ = ready_.subspan(bytes);
      rest = rest.subspan(bytes);
    }
  }

  io::InputFile file_;
  std::vector<std::byte> buffer_;
  std::span<std::byte> ready_;
  Footer footer_;
  std::string name_, file_hashes_;
  std::uint64_t read_ = 0;  ///< bytes of records read from the file
  std::uint64_t at_ = 0;    ///< bytes of records handed out
  Xxh3 hash_;
};

}  // namespace

std::vector<TextFile> look_at_files(const std::vector<std::string>& paths, bool formats) {
  std::vector<TextFile> files(paths.size());
  io::concurrently(paths.size(), [&](std::size_t i) {
    files[i] = look_at(paths[i]);
    if (!formats) return;
    std::array<char, 8> first{};
    const io::InputFile file(paths[i], "text file");
    const auto bytes = static_cast<std::size_t>(std::min<std::int64_t>(file.size(), std::ssize(first)));
    file.read_at(0, std::as_writable_bytes(std::span(first)).first(bytes));
    files[i].compressed = text::is_compressed({first.data(), bytes});
  });
  return files;
}

std::string encode(const std::vector<TextFile>& files) {
  std::string text;
  for (const TextFile& file : files)
    text += fmt::format("{} {} {} {}", file.bytes, file.changed, file.compressed ? 1 : 0, file.path) + '\0';
  return text;
}

std::vector<TextFile> decode_files(const std::string& text) {
  std::vector<TextFile> files;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line, '\0');) {
    TextFile& file = files.emplace_back();
    std::istringstream words(line);
    words >> file.bytes >> file.changed >> file.compressed;
    words.get();
    std::getline(words, file.path, '\0');
  }
  return files;
}

std::int64_t bytes_of_unit(std::int64_t all_bytes) {
  constexpr std::int64_t units = 512, least = std::int64_t{512} << 10, most = std::int64_t{64} << 20;
  return std::clamp(all_bytes / units, least, most);
}

namespace {

std::int64_t work_of_file(const TextFile& file) {
  constexpr std::int64_t text_of_compressed = 4;
  return file.bytes * (file.compressed ? text_of_compressed : 1);
}

}  // namespace

std::vector<TextUnit> units_of(const std::vector<TextFile>& files, bool by_lines, std::int64_t unit_bytes) {
  constexpr std::size_t most_files = 1024;
  std::vector<TextUnit> units;
  std::optional<std::int64_t> group;  // work of the last unit, if it has whole files
  for (std::size_t i = 0; i < files.size(); ++i) {
    const TextFile& file = files[i];
    if (!by_lines || file.compressed || file.bytes <= unit_bytes) {
      const std::int64_t work = work_of_file(file);
      if (group && *group + work <= unit_bytes && units.back().files < most_files) {
        ++units.back().files;
        units.back().end += file.bytes;
        *group += work;
      } else {
        units.push_back({.file = i, .kind = TextUnit::Kind::whole, .begin = 0, .end = file.bytes});
        group = work;
      }
      continue;
    }
    group.reset();
    for (std::int64_t begin = 0; begin < file.bytes; begin += unit_bytes)
      units.push_back(
          {.file = i, .kind = TextUnit::Kind::lines, .begin = begin, .end = std::min(begin + unit_bytes, file.bytes)});
    units.push_back({.file = i, .kind = TextUnit::Kind::hash, .begin = 0, .end = file.bytes});
  }
  return units;
}

std::int64_t work_of(const TextUnit& unit, const std::vector<TextFile>& files) {
  constexpr std::int64_t cheaper_hash = 200;
  if (unit.kind == TextUnit::Kind::hash) return (unit.end - unit.begin) / cheaper_hash;
  if (unit.kind == TextUnit::Kind::lines) return unit.end - unit.begin;
  std::int64_t work = 0;
  for (std::size_t i = 0; i < unit.files; ++i) work += work_of_file(files[unit.file + i]);
  return work;
}

std::vector<int> assign(const std::vector<TextUnit>& units, const std::vector<TextFile>& files, int ranks) {
  const auto work = [&](std::size_t i) { return work_of(units[i], files); };
  std::vector<std::size_t> order(units.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, work);
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks));
  std::vector<int> rank(units.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    *least += work(i);
    rank[i] = static_cast<int>(least - load.begin());
  }
  return rank;
}

std::string TokenParts::path_of(std::size_t number) const { return fmt::format("{}/part-{:07}", directory_, number); }

std::string TokenParts::name_of(const TextUnit& unit) const {
  const std::string range = fmt::format("{} {} {} {}", identity_, static_cast<int>(unit.kind), unit.begin, unit.end);
  const auto described = [&](const TextFile& file) {
    return fmt::format(" {} {} {}", file.bytes, file.changed, file.path);
  };
  if (unit.files == 1) return range + described(files_[unit.file]);
  Sha256 hash;
  for (std::size_t i = 0; i < unit.files; ++i) hash.add(described(files_[unit.file + i]) + '\0');
  return fmt::format("{} {} files {}", range, unit.files, hash.hex());
}

bool TokenParts::is_complete(std::size_t number, const TextUnit& unit) const {
  struct stat status {};
  if (::stat(path_of(number).c_str(), &status) != 0) return false;
  try {
    return PartReader(path_of(number)).name() == name_of(unit);
  } catch (const DataError&) {
    return false;  // it is made again
  }
}

std::string TokenParts::write_files(const TextUnit& unit, const TextReader& reader,
                                    const std::function<void(std::int64_t)>& advanced) const {
  std::string hashes;
  std::int64_t before = 0;
  for (std::size_t i = unit.file; i < unit.file + unit.files; ++i) {
    text::Stream stream(files_[i].path);
    reader.read(stream, [&](std::int64_t bytes) { advanced(before + bytes); });
    require_unchanged(files_[i]);
    hashes += stream.xxh3() + '\n';
    before += files_[i].bytes;
  }
  return hashes;
}

void TokenParts::write(std::size_t number, const TextUnit& unit, const tokenizer::Tokenizer& tokenizer,
                       const TokenizeOptions& options, const std::function<void(std::int64_t)>& advanced) const {
  const TextFile& file = files_[unit.file];
  fault::point("data.tokenize");
  PartWriter part(path_of(number), narrow_);
  std::string hashes;
  if (unit.kind == TextUnit::Kind::hash) {
    hashes = hash_of_file(file.path, advanced) + '\n';
  } else {
    std::int64_t bad = 0;
    text::Ordered<Encoded> work(options.threads, [&](const Encoded& parts) {
      for (const text::EncodedPart& one : parts)
        if (!one.bad.empty()) check_bad_lines(++bad, options.skip_bad, one.bad);
      part.add(parts);
    });
    const TextReader reader(tokenizer, options, work);
    if (unit.kind == TextUnit::Kind::whole) {
      hashes = write_files(unit, reader, advanced);
    } else {
      text::Stream stream(file.path, text::LineRange{.begin = unit.begin, .end = unit.end});
      const auto lines = std::make_shared<LinesBefore>(file.path, unit.begin);
      reader.read(stream, advanced, [lines] { return (*lines)(); });
    }
    work.finish();
  }
  require_unchanged(file);
  part.finish(name_of(unit), hashes);
}

std::vector<std::string> TokenParts::read(std::size_t number, const TextUnit& unit,
                                          const std::function<void(const Encoded&)>& take) const {
  PartReader part(path_of(number));
  if (part.name() != name_of(unit))
    throw DataError(fmt::format("{} is of other text; do not change {} while it is made", path_of(number), directory_));
  part.read(narrow_, take);
  std::vector<std::string> hashes;
  std::istringstream lines(part.file_hashes());
  for (std::string line; std::getline(lines, line);) hashes.push_back(line);
  return hashes;
}

std::string hash_of_file(const std::string& path, const std::function<void(std::int64_t)>& advanced) {
  io::InputFile file(path, "text file");
  std::vector<char> chunk(std::size_t{1} << 20);
  Xxh3 hash;
  std::int64_t read = 0;
  while (const std::size_t got = file.read_next(chunk)) {
    hash.add(std::span<const char>(chunk).first(got));
    advanced(read += static_cast<std::int64_t>(got));
  }
  return hash.hex();
}

}  // namespace trireme::data

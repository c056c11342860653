// SPDX-License-Identifier: Apache-2.0
#include "data/text/stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::data::text {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 18;

/// Whether `bytes` begin a skippable frame of zstd, as pzstd writes before each frame: magic 0x184D2A50 to 0x184D2A5F.
bool is_skippable_frame(std::string_view bytes) {
  return bytes.size() >= 8 && (bytes[0] & 0xF0) == 0x50 && bytes.substr(1, 3) == "\x2a\x4d\x18";
}

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }
bool is_zstd(std::string_view bytes) { return bytes.starts_with("\x28\xb5\x2f\xfd") || is_skippable_frame(bytes); }

}  // namespace

bool is_compressed(std::string_view bytes) { return is_gzip(bytes) || is_zstd(bytes); }

Stream::Stream(const std::string& path, LineRange lines)
    : file_(path, "text file"),
      standard_input_(false),
      buffer_(buffer_bytes),
      lines_(lines),
      next_(std::max<std::int64_t>(lines.begin - 1, 0)),
      within_line_(lines.begin > 0) {}

Stream::Stream(const std::string& path)
    : file_(path == "-" ? "/dev/stdin" : path, "text file", io::Pipes::taken),
      standard_input_(path == "-"),
      buffer_(buffer_bytes) {
  refill();
  const std::string_view first(ready_.data(), ready_.size());
  if (is_gzip(first)) decompressor_ = make_gzip(name());
  if (is_zstd(first)) decompressor_ = make_zstd(name());
}

std::string Stream::name() const { return standard_input_ ? "standard input" : file_.name(); }

/// Reads of a pipe return partial data: fills the buffer as far as the file goes.
void Stream::refill() {
  if (lines_) return refill_lines();
  std::size_t filled = 0;
  while (!ended_ && filled < buffer_.size()) {
    const std::size_t got = file_.read_next(std::span(buffer_).subspan(filled));
    filled += got;
    ended_ = got == 0;
  }
  ready_ = std::span<const char>(buffer_).first(filled);
  hash_.add(ready_);
  consumed_ += static_cast<std::int64_t>(filled);
}

/// A line that begins at byte `begin` follows a line end at `begin` - 1, where reading begins.
void Stream::refill_lines() {
  const std::int64_t first = next_;
  const std::int64_t bytes = std::min(static_cast<std::int64_t>(buffer_.size()), file_.size() - first);
  const std::span<char> chunk = std::span(buffer_).first(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0)));
  file_.read_at(first, std::as_writable_bytes(chunk));
  next_ += static_cast<std::int64_t>(chunk.size());
  ended_ = next_ >= file_.size();
  const std::string_view text(chunk.data(), chunk.size());
  const auto behind_line = [&](std::int64_t from) {
    const std::size_t at = text.find('\n', static_cast<std::size_t>(std::max<std::int64_t>(from - first, 0)));
    return at == std::string_view::npos ? at : at + 1;
  };
  std::size_t from = 0;
  if (within_line_) {
    const std::size_t behind = behind_line(first);
    within_line_ = behind == std::string_view::npos;
    from = within_line_ ? text.size() : behind;
  }
  // The last line ends at the first line end from byte `end` - 1 on.
  const std::size_t behind = behind_line(lines_->end - 1);
  ended_ = ended_ || behind != std::string_view::npos;
  const std::size_t to = std::max(from, std::min(behind, text.size()));
  ready_ = std::span<const char>(chunk).subspan(from, to - from);
  consumed_ += static_cast<std::int64_t>(ready_.size());
}

std::size_t Stream::read(std::span<char> out) {
  std::size_t written = 0;
  while (written < out.size()) {
    while (ready_.empty() && !ended_) refill();
    const std::span<char> rest = out.subspan(written);
    if (decompressor_ == nullptr) {
      if (ready_.empty()) break;
      const std::size_t bytes = std::min(ready_.size(), rest.size());
      std::ranges::copy(ready_.first(bytes), rest.begin());
      ready_ = ready_.subspan(bytes);
      written += bytes;
      continue;
    }
    const std::size_t left = ready_.size();
    const std::size_t bytes = decompressor_->run(ready_, rest);
    written += bytes;
    if (bytes > 0 || ready_.size() < left) continue;
    if (!ready_.empty()) throw DataError(fmt::format("{} holds damaged compressed data; copy it again", name()));
    if (!ended_) continue;
    if (!decompressor_->complete())
      throw DataError(fmt::format("{} ends in the middle of its compressed data; copy it again", name()));
    break;
  }
  return written;
}

}  // namespace trireme::data::text

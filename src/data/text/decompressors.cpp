// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <limits>

#include "data/text/stream.hpp"
#include "trireme/base/error.hpp"

namespace trireme::data::text {
namespace {

class Gzip final : public Decompressor {
 public:
  explicit Gzip(std::string name) : name_(std::move(name)) {
    constexpr int gzip_of_any_window = 15 + 16;
    if (inflateInit2(&state_, gzip_of_any_window) != Z_OK) throw EnvironmentError("zlib is out of memory");
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  ~Gzip() override { inflateEnd(&state_); }

  std::size_t run(std::span<const char>& in, std::span<char> out) override {
    if (complete_) skip_padding(in);
    if (in.empty() && complete_) return 0;
    if (complete_) {
      if (padded_) behind_the_end();
      inflateReset(&state_);  // another member
      complete_ = false;
      later_ = true;
    }
    constexpr std::size_t most = std::numeric_limits<uInt>::max();
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));  // zlib does not write to it
    state_.avail_in = static_cast<uInt>(std::min(in.size(), most));
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(std::min(out.size(), most));
    const auto room = state_.avail_out;
    const auto left = state_.avail_in;
    const int result = inflate(&state_, Z_NO_FLUSH);
    if (result == Z_DATA_ERROR && later_ && state_.total_out == 0) behind_the_end();
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      throw DataError(fmt::format("{} holds damaged gzip data: {}; copy it again", name_,
                                  state_.msg == nullptr ? "not of its format" : state_.msg));
    complete_ = result == Z_STREAM_END;
    in = in.subspan(left - state_.avail_in);
    return room - state_.avail_out;
  }

  [[nodiscard]] bool complete() const override { return complete_; }

 private:
  /// Zeros after a member, with which tapes and block stores fill their last block.
  void skip_padding(std::span<const char>& in) {
    const auto zeros = std::ranges::find_if(in, [](char c) { return c != 0; }) - in.begin();
    padded_ = padded_ || zeros > 0;
    in = in.subspan(static_cast<std::size_t>(zeros));
  }
  [[noreturn]] void behind_the_end() const {
    throw DataError(
        fmt::format("{} holds bytes behind the end of its gzip data, which gzip ignores with a warning; if "
                    "they belong to nothing: zcat FILE | trireme tokenize ... -",
                    name_));
  }

  std::string name_;
  z_stream state_{};
  bool complete_ = false;
  bool padded_ = false;  ///< zeros were after a member
  bool later_ = false;   ///< the member is not the first
};

class Zstd final : public Decompressor {
 public:
  static constexpr int longest_window = 27;  // the zstd tool's limit: 128 MiB, as written by zstd --long

  explicit Zstd(std::string name) : name_(std::move(name)), state_(ZSTD_createDStream(), &ZSTD_freeDStream) {
    if (state_ == nullptr) throw EnvironmentError("zstd is out of memory");
    ZSTD_DCtx_setParameter(state_.get(), ZSTD_d_windowLogMax, longest_window);
  }

  std::size_t run(std::span<const char>& in, std::span<char> out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const std::size_t result = ZSTD_decompressStream(state_.get(), &to, &from);
    if (ZSTD_isError(result) != 0 && ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
      throw DataError(
          fmt::format("{} is compressed with a window above {} MiB, which takes as much memory to read; zstd -dc "
                      "--long=31 FILE | trireme tokenize ... -",
                      name_, (1 << longest_window) >> 20));
    if (ZSTD_isError(result) != 0)
      throw DataError(fmt::format("{} holds damaged zstd data: {}; copy it again", name_, ZSTD_getErrorName(result)));
    if (from.pos > 0 || to.pos > 0) complete_ = result == 0;
    in = in.subspan(from.pos);
    return to.pos;
  }

  [[nodiscard]] bool complete() const override { return complete_; }

 private:
  std::string name_;
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> state_;
  bool complete_ = false;
};

}  // namespace

std::unique_ptr<Decompressor> make_gzip(const std::string& name) { return std::make_unique<Gzip>(name); }
std::unique_ptr<Decompressor> make_zstd(const std::string& name) { return std::make_unique<Zstd>(name); }

}  // namespace trireme::data::text

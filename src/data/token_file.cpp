// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/token_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/io/try_again.hpp"
#include "data/document_ends.hpp"
#include "data/fingerprint.hpp"
#include "data/megatron_index.hpp"
#include "data/text/check.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/base/log.hpp"

namespace trireme::data {
namespace {

using config::TokenFormat;

/// llm.c's header: 256 int32 words: magic, version, token count, zeros (dev/data/data_common.py).
constexpr std::int64_t llmc_header_bytes = 1024;
constexpr std::int32_t llmc_gpt2_magic = 20240520;    // version 1, uint16
constexpr std::int32_t llmc_llama3_magic = 20240801;  // version 7, uint32
constexpr std::int32_t llmc_eval_magic = 20240522;

/// Throws DataError if the system does not report it: without its index or mask the same file has other tokens.
bool exists(const std::string& path) {
  struct stat status {};
  const int error = io::last_error([&] { return ::stat(path.c_str(), &status) == 0; });
  if (error == 0) return true;
  if (error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG) return false;
  throw DataError(fmt::format("token file {}: cannot be looked at: {}; check its file system", path,
                              std::generic_category().message(error)));
}

/// The Megatron index that belongs to the token file at `path`.
std::string index_beside(const std::string& path) {
  return path.ends_with(".bin") ? path.substr(0, path.size() - 4) + ".idx" : path + ".idx";
}

bool may_be_indexed(TokenFormat format) { return format == TokenFormat::megatron || format == TokenFormat::automatic; }

/// The file that holds the tokens, when a Megatron pair is named by its .idx or by the common prefix.
std::string token_path(const std::string& path, TokenFormat format) {
  if (!may_be_indexed(format)) return path;
  if (path.ends_with(".idx")) return path.substr(0, path.size() - 4) + ".bin";
  if (!exists(path) && exists(path + ".bin") && exists(path + ".idx")) return path + ".bin";
  return path;
}

std::array<std::int32_t, 3> first_words(const io::InputFile& file) {
  std::array<std::int32_t, 3> words{};
  const auto bytes = std::as_writable_bytes(std::span(words));
  file.read_at(0, bytes.first(std::min(bytes.size(), static_cast<std::size_t>(file.size()))));
  return words;
}

bool is_llmc(std::int32_t magic) {
  return magic == llmc_gpt2_magic || magic == llmc_llama3_magic || magic == llmc_eval_magic;
}

/// Widens stored tokens to int32; returns the index of the first one outside [0, vocab_size), or the count.
template <class Stored>
std::size_t widen(const std::byte* bytes, std::int64_t vocab_size, std::span<std::int32_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored token;
    std::memcpy(&token, bytes + i * sizeof(Stored), sizeof(Stored));
    const auto id = static_cast<std::int64_t>(token);
    if (id < 0 || id >= vocab_size) return i;
    out[i] = static_cast<std::int32_t>(id);
  }
  return out.size();
}

std::size_t widen(TokenType type, const std::byte* bytes, std::int64_t vocab_size, std::span<std::int32_t> out) {
  switch (type) {
    case TokenType::uint8: return widen<std::uint8_t>(bytes, vocab_size, out);
    case TokenType::int8: return widen<std::int8_t>(bytes, vocab_size, out);
    case TokenType::int16: return widen<std::int16_t>(bytes, vocab_size, out);
    case TokenType::uint16: return widen<std::uint16_t>(bytes, vocab_size, out);
    case TokenType::int32: return widen<std::int32_t>(bytes, vocab_size, out);
    case TokenType::uint32: return widen<std::uint32_t>(bytes, vocab_size, out);
    case TokenType::int64: return widen<std::int64_t>(bytes, vocab_size, out);
  }
  throw BugError("unknown token type");
}

/// Text is within most vocabularies when it is read as tokens.
void refuse_text(const io::InputFile& file) {
  std::string beginning(static_cast<std::size_t>(std::min<std::int64_t>(file.size(), 4096)), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(beginning)));
  const std::string kind = text::TextCheck::kind_of(beginning);
  if (kind.empty()) return;
  throw DataError(
      fmt::format("{} holds no tokens: it is {}; tokenize it first: trireme tokenize --tokenizer TOKENIZER "
                  "{}-o {} {}",
                  file.name(), kind, kind == "JSON lines" ? "--field text " : "",
                  std::filesystem::path(file.path()).replace_extension(".bin").string(), file.path()));
}

/// One stored token, possibly negative.
std::int64_t stored_value(TokenType type, const std::byte* bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes, static_cast<std::size_t>(size_of(type)));
  switch (type) {
    case TokenType::int8: return static_cast<std::int8_t>(bits);
    case TokenType::int16: return static_cast<std::int16_t>(bits);
    case TokenType::int32: return static_cast<std::int32_t>(bits);
    default: return static_cast<std::int64_t>(bits);
  }
}

}  // namespace

std::string_view format_name(TokenFormat format) {
  switch (format) {
    case TokenFormat::automatic: return "auto";
    case TokenFormat::uint16: return "uint16";
    case TokenFormat::uint32: return "uint32";
    case TokenFormat::megatron: return "megatron";
    case TokenFormat::llmc: return "llmc";
  }
  return "?";
}

std::string mask_path(const std::string& path) { return path + ".mask"; }

TokenPlace find_token_file(const std::string& path, TokenFormat format) {
  const std::string tokens = token_path(path, format);
  return {.path = tokens,
          .indexed = may_be_indexed(format) && exists(index_beside(tokens)),
          .masked = exists(mask_path(tokens)),
          .described = exists(sidecar_path(tokens))};
}

std::vector<std::string> paths_of(const TokenPlace& place) {
  std::vector<std::string> paths{place.path};
  if (place.indexed) paths.push_back(index_beside(place.path));
  if (place.masked) paths.push_back(mask_path(place.path));
  if (place.described) {
    paths.push_back(sidecar_path(place.path));
    if (exists(ends_path(place.path))) paths.push_back(ends_path(place.path));
  }
  return paths;
}

std::vector<std::string> missing_beside(const TokenPlace& place, TokenFormat format) {
  std::vector<std::string> paths;
  if (may_be_indexed(format) && !place.indexed) paths.push_back(index_beside(place.path));
  if (!place.masked) paths.push_back(mask_path(place.path));
  if (!place.described) paths.push_back(sidecar_path(place.path));
  return paths;
}

TokenFile::TokenFile(const TokenPlace& place, TokenFormat format, std::int64_t vocab_size)
    : file_(place.path, "token file"), format_(format), vocab_size_(vocab_size) {
  if (place.described) sidecar_ = read_sidecar(place.path);
  const bool indexed = format == TokenFormat::megatron || place.indexed;
  if (!indexed && file_.size() == 0) {
    throw DataError(file_.name() + " is empty; was the tokenizer stopped? Make it again with `trireme tokenize`");
  }
  if (indexed) {
    open_megatron(place.indexed);
  } else if (format == TokenFormat::llmc || (format == TokenFormat::automatic && is_llmc(first_words(file_)[0]))) {
    open_llmc();
  } else if (format == TokenFormat::automatic) {
    open_raw(sidecar_ ? (sidecar_->dtype == "uint16" ? TokenType::uint16 : TokenType::uint32)
                      : raw_token_type(vocab_size));
  } else {
    open_raw(format == TokenFormat::uint16 ? TokenType::uint16 : TokenType::uint32);
  }
  if (place.masked) open_mask();
  if (sidecar_) open_ends();
}

TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;
TokenFile::~TokenFile() = default;

/// Compares the sizes of all that the sidecar describes.
void TokenFile::open_ends() {
  const auto refuse = [&](const std::string& what) {
    throw DataError(
        fmt::format("{}: its sidecar {} {}: they do not belong together; tokenize again, or remove the .meta "
                    "and .ends files of other tokens",
                    file_.name(), sidecar_path(file_.path()), what));
  };
  if (sidecar_->tokens != tokens_)
    refuse(fmt::format("counts {} tokens, the file holds {}", sidecar_->tokens, tokens_));
  if (const std::int64_t bytes = sidecar_->dtype == "uint16" ? 2 : 4; bytes != size_of(type_))
    refuse(fmt::format("has tokens of {}, the file is read as {}", sidecar_->dtype, to_text(type_)));
  if (!sidecar_->mask_xxh3.empty() && !mask_)
    refuse(fmt::format("was written with a mask of targets, {}, which is missing", mask_path(file_.path())));
  auto ends = open_ends_file(ends_path(file_.path()), sidecar_->documents);
  std::int64_t last = 0;
  if (ends->documents() > 0) ends->read(ends->documents() - 1, std::span(&last, 1));
  if (last != tokens_)
    refuse(fmt::format("has document ends, {}, whose last document ends at token {} of {}", ends_path(file_.path()),
                       last, tokens_));
  if (ends_) check_same_ends(file_.path(), *ends, *ends_);
  ends_ = std::move(ends);
}

void TokenFile::read_document_begins(std::int64_t first, std::span<std::int32_t> out) const {
  invariant(ends_ && first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tokens_,
            "documents are read within their file");
  ends_->begins(first, out);
}

std::int32_t TokenFile::padding() const {
  const std::int64_t end = sidecar_ ? sidecar_->document_end.value_or(0) : 0;
  return end < vocab_size_ ? static_cast<std::int32_t>(end) : 0;
}

std::int64_t TokenFile::documents() const {
  invariant(ends_ != nullptr, "documents are counted where their ends are known");
  return ends_->documents();
}

void TokenFile::read_document_ends(std::int64_t document, std::span<std::int64_t> out) const {
  invariant(document >= 0 && document + std::ssize(out) <= documents(), "ends are read of documents of the file");
  ends_->read(document, out);
  if (!out.empty() && out.back() > tokens_)
    throw DataError(fmt::format("{}: document {} ends at token {} of {}; tokenize again", file_.name(),
                                document + std::ssize(out) - 1, out.back(), tokens_));
}

void TokenFile::open_mask() {
  mask_.emplace(mask_path(file_.path()), "mask of targets");
  if (mask_->size() != tokens_)
    throw DataError(fmt::format(
        "{} has {} bytes, but {} has {} tokens: it belongs to other tokens; tokenize again, or remove it to count "
        "every token in the loss",
        mask_->name(), mask_->size(), file_.path(), tokens_));
}

void TokenFile::read_mask(std::int64_t first, std::span<std::uint8_t> out) const {
  invariant(mask_ && first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tokens_,
            "a mask is read within its file");
  mask_->read_at(first, std::as_writable_bytes(out));
  const auto wrong = std::ranges::find_if(out, [](std::uint8_t byte) { return byte > 1; });
  if (wrong != out.end())
    throw DataError(fmt::format("{}: byte {} is {}, neither 0 nor 1; tokenize again", mask_->name(),
                                first + (wrong - out.begin()), *wrong));
}

void TokenFile::open_megatron(bool indexed) {
  const std::string index_path = index_beside(file_.path());
  if (!indexed) {
    throw DataError(
        fmt::format("{}: data.format is megatron but its index {} is missing; name the .bin of a .bin/.idx pair, "
                    "or set data.format = \"uint16\" or \"uint32\" for a raw file",
                    file_.name(), index_path));
  }
  const MegatronIndex index = check_megatron_index(index_path, file_.size());
  if (index.tokens == 0)
    throw DataError(fmt::format("{}: its index {} holds no tokens; make it again", file_.name(), index_path));
  if (index.empty_sequences > 0) {
    log::warning(fmt::format("{}: {} of {} sequences are empty", index_path, index.empty_sequences, index.sequences));
  }
  index_path_ = index_path;
  format_ = TokenFormat::megatron;
  type_ = index.type;
  tokens_ = index.tokens;
  ends_ = open_index_ends(index_path, index);
}

void TokenFile::open_llmc() {
  const auto [magic, version, count] = first_words(file_);
  if (magic == llmc_eval_magic) {
    throw DataError(file_.name() +
                    " is an llm.c evaluation file (magic 20240522), not a stream of tokens; name a training file");
  }
  if (!is_llmc(magic)) {
    throw DataError(fmt::format(
        "{}: bad magic {}, where llm.c writes {} (gpt-2, uint16) or {} (llama-3, uint32); for a raw file set "
        "data.format = \"uint16\" or \"uint32\"",
        file_.name(), magic, llmc_gpt2_magic, llmc_llama3_magic));
  }
  const bool gpt2 = magic == llmc_gpt2_magic;
  if (const int known = gpt2 ? 1 : 7; version != known) {
    throw DataError(
        fmt::format("{}: llm.c {} files of version {} are not known, only of version {}; make it again with llm.c's "
                    "dev/data scripts",
                    file_.name(), gpt2 ? "gpt-2" : "llama-3", version, known));
  }
  format_ = TokenFormat::llmc;
  type_ = gpt2 ? TokenType::uint16 : TokenType::uint32;
  header_bytes_ = llmc_header_bytes;
  tokens_ = count;
  const std::int64_t expected = llmc_header_bytes + tokens_ * size_of(type_);
  if (count < 0 || file_.size() != expected) {
    throw DataError(
        fmt::format("{} has {} bytes but its header declares {} tokens, which take {}{}; copy or make it again",
                    file_.name(), file_.size(), count, expected, file_.size() < expected ? ": it is truncated" : ""));
  }
  if (tokens_ == 0) throw DataError(file_.name() + " holds no tokens: its header declares 0; make it again");
}

/// Token type of a raw file, from a sample of it and `type`, the type for the vocabulary: int64 if the upper half
/// of each 8 bytes is zero, uint32 if the upper half of each 4 bytes is zero, or below 16 with lower halves above
/// 255, where ids would exceed the vocabulary.
TokenType sampled_type(const io::InputFile& file, TokenType type) {
  constexpr std::int64_t block_bytes = 16384, least_bytes = 64;
  std::array<std::uint64_t, block_bytes / 8> words;
  std::uint64_t all = 0;  ///< bits set in any word of 8 bytes
  if (file.size() < least_bytes) return type;
  const std::int64_t blocks = file.size() > 3 * block_bytes ? 3 : 1;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t whole = file.size() / 8 * 8;
    const std::int64_t bytes = std::min(block_bytes, whole);
    const std::int64_t offset = blocks == 1 ? 0 : (whole - bytes) / 2 / 8 * 8 * i;
    file.read_at(offset, std::as_writable_bytes(std::span(words)).first(static_cast<std::size_t>(bytes)));
    for (std::int64_t word = 0; word < bytes / 8; ++word) all |= words[static_cast<std::size_t>(word)];
  }
  if (all == 0) return type;
  if (all >> 32 == 0 && file.size() % 8 == 0) return TokenType::int64;
  const std::uint64_t halves = all | all >> 32, upper = halves >> 16 & 0xffff, lower = halves & 0xffff;
  const bool wide = upper == 0 || (upper < 16 && lower > 255);
  return type == TokenType::uint16 && wide && file.size() % 4 == 0 ? TokenType::uint32 : type;
}

void TokenFile::open_raw(TokenType type) {
  if (format_ == TokenFormat::automatic) {
    refuse_text(file_);
    if (first_words(file_)[0] == 0x4d554e93) {  // "\x93NUM"
      throw DataError(file_.name() + " is a NumPy .npy file; write the bare tokens with array.tofile() instead");
    }
    if (!sidecar_)
      if (const TokenType found = sampled_type(file_, type); found != type) {
        if (found == TokenType::int64)
          throw DataError(
              fmt::format("{} holds tokens of 8 bytes: in a sample of it the upper half of each 8 bytes is zero; write "
                          "them as {}, as with Python's numpy.fromfile(FILE, \"<i8\").astype(\"<u{}\").tofile(OUT)",
                          file_.name(), to_text(type), size_of(type)));
        log::info(fmt::format("{} is read as {}, not {} by its vocabulary: a sample holds words of 4 bytes",
                              file_.name(), to_text(found), to_text(type)));
        type = found;
      }
    format_ = type == TokenType::uint16 ? TokenFormat::uint16 : TokenFormat::uint32;
  }
  type_ = type;
  if (file_.size() % size_of(type) != 0) {
    throw DataError(
        fmt::format("{} has {} bytes, not a whole number of {} tokens ({} bytes each): it is truncated, or data.format "
                    "is wrong",
                    file_.name(), file_.size(), to_text(type), size_of(type)));
  }
  tokens_ = file_.size() / size_of(type);
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  invariant(first >= 0 && first + count <= tokens_, "tokens are read within their file");
  const std::int64_t width = size_of(type_);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * width));
  file_.read_at(header_bytes_ + first * width, bytes);
  const std::size_t good = widen(type_, bytes.data(), vocab_size_, out);
  if (good == out.size()) return;
  const std::int64_t id = stored_value(type_, &bytes[good * static_cast<std::size_t>(width)]);
  const bool raw = format_ == TokenFormat::uint16 || format_ == TokenFormat::uint32;
  throw DataError(
      fmt::format("{}: token {} at position {} is outside the vocabulary of {} (0 to {}); set model.vocab_size to the "
                  "tokenizer's, tokenize again, or correct data.format (it is read as {}{})",
                  file_.name(), id, first + static_cast<std::int64_t>(good), vocab_size_, vocab_size_ - 1,
                  raw ? "" : fmt::format("{}, ", format_name(format_)), to_text(type_)));
}

std::uint64_t TokenFile::fingerprint() const {
  const std::string sizes = fmt::format("{} {} {} {} ", to_text(type_), tokens_, header_bytes_, file_.size());
  return fnv1a(sizes + sampled_hash(file_) +
               (index_path_.empty() ? "" : whole_hash(io::InputFile(index_path_, "token index"))) +
               (mask_ ? "mask " + sampled_hash(*mask_) : ""));
}

std::uint64_t TokenFile::old_fingerprint() const {
  constexpr std::int64_t blocks = 16, block_bytes = 4096;
  std::string sample = fmt::format("{} {} {}", to_text(type_), tokens_, header_bytes_);
  std::vector<std::byte> buffer(block_bytes);
  const std::int64_t last = std::max<std::int64_t>(0, file_.size() - block_bytes);
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t offset = last / (blocks - 1) * i + (i == blocks - 1 ? last % (blocks - 1) : 0);
    const auto bytes = std::span(buffer).first(static_cast<std::size_t>(std::min(block_bytes, file_.size() - offset)));
    file_.read_at(offset, bytes);
    sample.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return fnv1a(sample);
}

}  // namespace trireme::data

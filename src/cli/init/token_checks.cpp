// SPDX-License-Identifier: Apache-2.0
#include "cli/init/token_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/data/tokenizer_check.hpp"

namespace trireme::cli {
namespace {

constexpr std::int64_t ids_of_two_bytes = 65536;

/// Whether two-byte words are single tokens: the upper half of a four-byte token is small.
bool are_two_byte_tokens(const data::TokenFile& words) {
  constexpr std::int64_t most = 1 << 16;
  constexpr std::int32_t upper_half = 16;  // of ids up to 2^20
  std::vector<std::int32_t> some(static_cast<std::size_t>(std::min(words.tokens() / 2 * 2, most)));
  words.read(0, some);
  std::int64_t large = 0;
  for (std::size_t i = 1; i < some.size(); i += 2) large += some[i] >= upper_half ? 1 : 0;
  return 10 * large > std::ssize(some) / 2;
}

/// Whether `automatic` reads the file as tokens of four bytes without a header; also where their number is not whole.
bool is_read_as_four_bytes(const data::TokenPlace& place, std::int64_t vocab_size) {
  if (place.indexed) return false;
  try {
    return data::TokenFile(place, config::TokenFormat::automatic, vocab_size).format() == config::TokenFormat::uint32;
  } catch (const DataError&) {
    try {  // as words it has no mistake where only the number of four bytes is not whole
      return data::TokenFile(place, config::TokenFormat::automatic, ids_of_two_bytes).format() ==
             config::TokenFormat::uint16;
    } catch (const DataError&) {
      return false;  // opening it for training reports the mistake
    }
  }
}

}  // namespace

void refuse_two_byte_tokens(const std::vector<config::TokenSource>& sources, config::TokenFormat format,
                            std::int64_t vocab_size) {
  if (format != config::TokenFormat::automatic || vocab_size <= ids_of_two_bytes) return;
  for (const config::TokenSource& source : sources) {
    const data::TokenPlace place = data::find_token_file(source.path, format);
    if (!is_read_as_four_bytes(place, vocab_size)) continue;
    if (are_two_byte_tokens(data::TokenFile(place, config::TokenFormat::uint16, ids_of_two_bytes)))
      throw DataError(fmt::format(
          "{}: tokens of two bytes, made for a vocabulary of at most 65,536 ids; this model has {}: tokenize the text "
          "with the model's tokenizer (trireme tokenize --tokenizer hf:PATH)",
          place.path, vocab_size));
  }
}

void check_ids(const data::Dataset& dataset, const tokenizer::Tokenizer* tokenizer, const std::string& spec,
               std::int64_t vocab_size) {
  if (tokenizer != nullptr)
    data::require_tokenizer(std::span(&dataset, 1), *tokenizer, "the run's tokenizer is " + spec,
                            "tokenize again with the run's, or give the file's with --tokenizer");
  constexpr std::int64_t most_samples = 16;
  const std::int64_t samples = std::min(dataset.samples(), most_samples);
  std::vector<std::int32_t> sample(static_cast<std::size_t>(dataset.seq_len() + 1));
  std::int32_t largest = 0;
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    dataset.read(samples == 1 ? 0 : i * (dataset.samples() - 1) / (samples - 1), sample);
    largest = std::max(largest, *std::ranges::max_element(sample));
    tokens += std::ssize(sample);
  }
  if (10 * std::int64_t{largest} >= vocab_size) return;
  log::warning(fmt::format(
      "{}{}: none of {} tokens in a sample has an id above {}, and the model has a vocabulary of {}; check "
      "that they were made with the model's tokenizer",
      dataset.files().front().path(), dataset.files().size() > 1 ? " and others" : "", tokens, largest, vocab_size));
}

}  // namespace trireme::cli

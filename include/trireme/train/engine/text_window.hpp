// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/model/model.hpp"

namespace trireme::train {

/// Tokens of one forward of a growing text: tokens [begin + past, begin + past + count), seen with those from
/// `begin` on.
struct ForwardRange {
  std::int64_t begin = 0;  ///< the first token of the text that the model sees
  std::int64_t past = 0;   ///< tokens from there on whose keys and values are in the cache
  std::int64_t count = 0;  ///< positions that are computed
  friend bool operator==(const ForwardRange&, const ForwardRange&) = default;
};

/// Computed positions of a text for each next token. The model sees up to `seq_len` tokens: the older half of a longer
/// text is dropped, so that a token costs at most about two positions on average.
class TextWindow {
 public:
  /// cached: the keys and values of earlier tokens are kept; else every forward computes all that it sees.
  TextWindow(const model::Sizes& sizes, std::int64_t seq_len, bool cached);

  /// The forward that predicts the token after a text of `length` tokens (> 0); `length` grows from call to call.
  [[nodiscard]] ForwardRange next(std::int64_t length);
  [[nodiscard]] bool cached() const { return cached_; }

 private:
  std::int64_t seq_len_;
  bool cached_;
  /// Every key turns otherwise in a longer text: once (longrope), or at each token (dynamic). 0: they stay.
  std::int64_t short_length_ = 0;
  bool dynamic_ = false;
  std::int64_t begin_ = 0, held_ = 0;
};

}  // namespace trireme::train

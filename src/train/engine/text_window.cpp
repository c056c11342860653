// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine/text_window.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/kernels/rope.hpp"

namespace trireme::train {

TextWindow::TextWindow(const model::Sizes& sizes, std::int64_t seq_len, bool cached)
    : seq_len_(seq_len), cached_(cached) {
  if (!kernels::turns_by_length(sizes.rope_scaling)) return;
  short_length_ = sizes.rope_scaling->original_max_position_embeddings;
  dynamic_ = sizes.rope_scaling->type == config::RopeType::dynamic;
}

ForwardRange TextWindow::next(std::int64_t length) {
  const bool grew = held_ > 0;
  invariant(!grew || length == begin_ + held_ + 1, "a text grows by one token at a time");
  if (!grew) begin_ = std::max<std::int64_t>(0, length - seq_len_);
  const bool moves = length - begin_ > seq_len_;
  if (moves) begin_ = length - std::max<std::int64_t>(1, seq_len_ / 2);
  const std::int64_t seen = length - begin_;
  const bool turned = short_length_ > 0 && (dynamic_ ? seen > short_length_ : seen == short_length_ + 1);
  const std::int64_t past = cached_ && grew && !moves && !turned ? seen - 1 : 0;
  held_ = seen;
  return {.begin = begin_, .past = past, .count = seen - past};
}

}  // namespace trireme::train

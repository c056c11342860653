// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/units.hpp"
#include "trireme/model/model.hpp"

/// Keys and values of earlier tokens, after RoPE, which attention keeps while a text is generated.
namespace trireme::model {

/// Whether a stage has a key/value cache.
[[nodiscard]] bool has_kv_cache(StageKind kind, const Sizes& sizes);

/// Tokens with cached keys and values in a row of `seq_len` tokens: with a window those that the next token sees.
/// Position p is at index p mod cached_tokens.
[[nodiscard]] std::int64_t cached_tokens(std::int64_t window, std::int64_t seq_len);

/// Bytes of the cache of all stages that this rank holds, for `rows` rows of up to `seq_len` tokens.
[[nodiscard]] Bytes kv_cache_bytes(const Model& model, std::int64_t rows, std::int64_t seq_len, DType compute);

}  // namespace trireme::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::model {

/// Tensors that a block keeps between forward and backward.
enum class Keep {
  /// Only what the block read: its forward runs again before its backward ("activation checkpointing", Chen et al.
  /// 2016).
  input,
  /// Tensors expensive per byte: matrix products, attention and the block's input. Cheap ones, the outputs of norms, of
  /// SwiGLU and of RoPE, are recomputed inside backward (Korthikanti et al. 2022).
  products,
  /// All that backward reads: products, and the outputs of norms and of SwiGLU.
  all,
  /// No backward follows: the keys and values of attention, for the tokens that the next forward adds (`kv_cache.hpp`).
  kv_cache,
};

}  // namespace trireme::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "trireme/comm/transport.hpp"

namespace trireme::comm {

struct StagingSource;

/// An all-reduce in the host's memory, made of the transport's reduce-scatter and all-gather: sums in rank order, the
/// same bits on all ranks.
class AllReduce {
 public:
  /// data: [elements] fp32, in place; any count. wire: fp32, or bf16, which sends terms and sums rounded to bf16.
  void operator()(Transport& transport, const StagingSource& staging, float* data, std::int64_t elements, DType wire,
                  mpi::Wait& wait);

 private:
  std::shared_ptr<std::byte[]> packed_;  // bf16
};

}  // namespace trireme::comm

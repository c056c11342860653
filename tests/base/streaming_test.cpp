// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/streaming.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace trireme {
namespace {

TEST(StreamCopy, CopiesWhatMemcpyDoesAndNothingElse) {
  std::vector<std::byte> from(2000), to(2000), expected(2000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 37 + i / 256 + 1);
  for (const std::size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 200, 1000}) {
    for (const std::size_t source : {0, 1, 4, 63}) {
      for (std::size_t target = 0; target < cache_line; ++target) {
        std::fill(to.begin(), to.end(), std::byte{0});
        std::fill(expected.begin(), expected.end(), std::byte{0});
        stream_copy(from.data() + source, to.data() + target, bytes);
        std::memcpy(expected.data() + target, from.data() + source, bytes);
        ASSERT_EQ(to, expected) << bytes << " bytes from " << source << " to " << target;
      }
    }
  }
}

TEST(StreamZeros, ClearsWhatMemsetDoesAndNothingElse) {
  std::vector<std::byte> to(1200), expected(1200);
  for (const std::size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 200, 1000}) {
    for (std::size_t target = 0; target < cache_line; ++target) {
      std::fill(to.begin(), to.end(), std::byte{7});
      std::fill(expected.begin(), expected.end(), std::byte{7});
      stream_zeros(to.data() + target, bytes);
      std::memset(expected.data() + target, 0, bytes);
      ASSERT_EQ(to, expected) << bytes << " bytes from " << target;
    }
  }
}

}  // namespace
}  // namespace trireme

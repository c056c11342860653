// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cli/inference/inference.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cli::cache_memory_test {
namespace {

constexpr Bytes gib{std::int64_t{1} << 30};

TEST(CacheMemory, IsThereForAllRanksOfTheNode) {
  check_cache_memory(gib, 4096, 1, gib);
  check_cache_memory(gib, 4096, 4, Bytes{4 * gib.value});
  check_cache_memory(Bytes{}, 4096, 4, Bytes{});
}

TEST(CacheMemory, IsRefusedBeforeItIsAllocated) {
  try {
    check_cache_memory(gib, 4096, 4, Bytes{3 * gib.value});
    ADD_FAILURE() << "four ranks share three gibibytes";
  } catch (const EnvironmentError& error) {
    for (const char* part : {"4096 tokens takes 1 GiB", "(4)", "3 GiB", "--no-cache", "--tokens"})
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
  }
}

TEST(LongText, IsWarnedOfWhereTheModelSeesOnlyItsEnd) {
  EXPECT_EQ(long_text_warning("m", 256, 256), "");
  const std::string text = long_text_warning("runs/m", 257, 256);
  for (const char* part :
       {"runs/m: ", "257 tokens", "at most 256 (max_position_embeddings)", "last 128 to 256", "--tokens"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace trireme::cli::cache_memory_test

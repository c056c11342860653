// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/text_table.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(TextTable, AlignsTheFirstColumnLeftAndTheOthersRight) {
  TextTable table({"category", "bytes", "share"});
  table.add({"parameters", "1.5 GiB", "75%"});
  table.add({"data", "2 KiB", "0%"});
  EXPECT_EQ(table.str(),
            "category      bytes  share\n"
            "parameters  1.5 GiB    75%\n"
            "data          2 KiB     0%\n");
}

TEST(TextTable, AllowsShortRowsAndCountsCharactersNotBytes) {
  TextTable table({"a", "b"});
  table.add({"µs", "1"});
  table.add({"x"});
  EXPECT_EQ(table.str(),
            "a   b\n"
            "µs  1\n"
            "x\n");
}

}  // namespace
}  // namespace trireme

// SPDX-License-Identifier: Apache-2.0
//
// Not a test: the second source of the probe, for the selection by --file.
#include <gtest/gtest.h>

namespace {

TEST(OtherSource, Passes) { SUCCEED(); }

}  // namespace

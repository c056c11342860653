// SPDX-License-Identifier: Apache-2.0
//
// Not a test: the second source of the probe, which --file has to tell from the first.
#include <gtest/gtest.h>

namespace {

TEST(OtherSource, Passes) { SUCCEED(); }

}  // namespace

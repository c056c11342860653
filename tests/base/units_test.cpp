// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/units.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

TEST(Bytes, PrintWithThreeDigitsInBinaryUnits) {
  EXPECT_EQ(to_text(Bytes{0}), "0 B");
  EXPECT_EQ(to_text(Bytes{1023}), "1023 B");
  EXPECT_EQ(to_text(Bytes{1536}), "1.5 KiB");
  EXPECT_EQ(to_text(Bytes{1536LL << 20}), "1.5 GiB");
  EXPECT_EQ(to_text(Bytes{123456789}), "118 MiB");
  EXPECT_EQ(to_text(Bytes{(1 << 20) - 1}), "1 MiB");
  EXPECT_EQ(to_text(Bytes{-2048}), "-2 KiB");
  EXPECT_EQ(to_text(Bytes{INT64_MAX}), "8 EiB");
}

TEST(Bytes, ParseIntegersAndUnits) {
  EXPECT_EQ(parse_bytes("123").value, 123);
  EXPECT_EQ(parse_bytes("123B").value, 123);
  EXPECT_EQ(parse_bytes("40GiB").value, 40LL << 30);
  EXPECT_EQ(parse_bytes(" 512 MB ").value, 512'000'000);
  EXPECT_EQ(parse_bytes("1.5KiB").value, 1536);
  EXPECT_EQ(parse_bytes("2TiB").value, 2LL << 40);
  EXPECT_EQ(parse_bytes("9223372036854775807").value, INT64_MAX);
}

TEST(Bytes, RefuseWhatIsNoNumberOfBytes) {
  for (const char* text :
       {"", "GiB", "-1", "-1GiB", "1.5", "4 gigs", "1e3", "nan", "inf", "0x10", "9999999TiB", "9223372036854775808"})
    EXPECT_THROW((void)parse_bytes(text), ConfigError) << text;
  try {
    (void)parse_bytes("4 gigs");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"4 gigs\""));
    EXPECT_THAT(error.what(), HasSubstr("GiB"));
  }
}

TEST(Counts, PrintShort) {
  EXPECT_EQ(to_short_text(0), "0");
  EXPECT_EQ(to_short_text(999), "999");
  EXPECT_EQ(to_short_text(12'345), "12.3k");
  EXPECT_EQ(to_short_text(999'999), "1M");
  EXPECT_EQ(to_short_text(1.24e6), "1.24M");
  EXPECT_EQ(to_short_text(8.03e9), "8.03B");
  EXPECT_EQ(to_short_text(1.5e13), "15T");
}

TEST(Durations, PrintAsAPersonReadsThem) {
  EXPECT_EQ(duration_text(12.34), "12.3 s");
  EXPECT_EQ(duration_text(59.99), "1 min 00 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(3599.9), "1 h 00 min");
  EXPECT_EQ(duration_text(3720), "1 h 02 min");
  EXPECT_EQ(duration_text(26 * 3600), "1 d 02 h");
  EXPECT_EQ(duration_text(-1), "?");
}

TEST(DTypes, HaveNamesAndSizes) {
  EXPECT_EQ(to_text(DType::fp32), "fp32");
  EXPECT_EQ(to_text(DType::bf16), "bf16");
  EXPECT_EQ(size_of(DType::fp32), 4);
  EXPECT_EQ(size_of(DType::bf16), 2);
}

}  // namespace
}  // namespace trireme

// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/crc32.hpp"

#include <gtest/gtest.h>

#include <string>

#include "trireme/base/philox.hpp"

namespace trireme {
namespace {

/// The division itself, a bit at a time: the CRC's oracle.
std::uint32_t bit_by_bit(const std::string& bytes) {
  std::uint32_t rest = 0xffffffff;
  for (const char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool odd = ((rest ^ (static_cast<unsigned char>(byte) >> bit)) & 1) != 0;
      rest = (rest >> 1) ^ (odd ? 0x82f63b78 : 0);
    }
  return ~rest;
}

std::string counting(int first, int step) {
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(first + i * step);
  return bytes;
}

// RFC 3720, B.4, whose bytes stand lowest first.
TEST(Crc32c, GivesTheAnswersOfRfc3720) {
  EXPECT_EQ(crc32c(std::string(32, '\x00')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(counting(0, 1)), 0x46dd794eU);
  EXPECT_EQ(crc32c(counting(31, -1)), 0x113fdb5cU);
  std::string read_command(48, '\0');  // an iSCSI read (10)
  for (const auto& [at, byte] :
       {std::pair(0, 0x01), {1, 0xc0}, {16, 0x14}, {22, 0x04}, {27, 0x14}, {31, 0x18}, {32, 0x28}, {40, 0x02}})
    read_command[static_cast<std::size_t>(at)] = static_cast<char>(byte);
  EXPECT_EQ(crc32c(read_command), 0xd9963a56U);
}

TEST(Crc32c, GivesTheCheckValueOfItsCatalogue) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Crc32, GivesTheCheckValueOfItsCatalogue) {
  EXPECT_EQ(crc32("123456789"), 0xcbf43926U);
  EXPECT_EQ(crc32(""), 0U);
}

TEST(Crc32c, IsTheDivisionBitByBit) {
  std::string bytes;
  for (std::uint64_t i = 0; i < 600; ++i) {
    EXPECT_EQ(crc32c(bytes), bit_by_bit(bytes)) << i << " bytes";
    bytes += static_cast<char>(philox4x32(7, i)[0]);
  }
}

}  // namespace
}  // namespace trireme

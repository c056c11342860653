// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/crc32.hpp"

#include <array>

namespace trireme {
namespace {

/// By byte: its remainder after eight steps of the division by the reflected polynomial.
constexpr std::array<std::uint32_t, 256> make_table(std::uint32_t polynomial) {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? polynomial : 0);
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> castagnoli = make_table(0x82f63b78), zlib = make_table(0xedb88320);

std::uint32_t checksum(std::string_view bytes, const std::array<std::uint32_t, 256>& table) {
  std::uint32_t rest = 0xffffffff;
  for (const char byte : bytes) rest = (rest >> 8) ^ table[(rest ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~rest;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) { return checksum(bytes, castagnoli); }

std::uint32_t crc32(std::string_view bytes) { return checksum(bytes, zlib); }

}  // namespace trireme

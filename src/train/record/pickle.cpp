// SPDX-License-Identifier: Apache-2.0
#include "train/record/pickle.hpp"

namespace trireme::train {
namespace {

void append_little_endian(std::string& bytes, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

}  // namespace

void Pickle::number(std::int64_t value) {
  if (value == static_cast<std::int32_t>(value)) {
    bytes_ += 'J';
    append_little_endian(bytes_, static_cast<std::uint64_t>(value), 4);
  } else {
    bytes_ += "\x8a\x08";
    append_little_endian(bytes_, static_cast<std::uint64_t>(value), 8);
  }
}

void Pickle::text(std::string_view value) {
  bytes_ += 'X';
  append_little_endian(bytes_, value.size(), 4);
  bytes_ += value;
}

}  // namespace trireme::train

// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/sha256.hpp"

#include <gtest/gtest.h>

#include <string>

namespace trireme {
namespace {

/// The digest of `text`, added `at_once` bytes at a time.
std::string digest(const std::string& text, std::size_t at_once) {
  Sha256 hash;
  for (std::size_t at = 0; at < text.size(); at += at_once) hash.add(std::string_view(text).substr(at, at_once));
  return hash.hex();
}

TEST(Sha256, GivesTheDigestsOfFips180) {
  for (const std::size_t at_once : {1, 7, 64, 1000}) {
    EXPECT_EQ(digest("", at_once), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(digest("abc", at_once), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", at_once),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(digest(std::string(1'000'000, 'a'), at_once == 1 ? 999 : at_once),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

}  // namespace
}  // namespace trireme

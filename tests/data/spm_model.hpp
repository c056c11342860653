// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "data/files.hpp"
#include "support/skips_here.hpp"

namespace trireme::data::test {

/// Tests that train a SentencePiece model: skipped where the Debian package sentencepiece is not installed.
class SpmTrainTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v spm_train > /dev/null") != 0)
      GTEST_SKIP() << trireme::test::not_here << "spm_train is not installed (Debian: sentencepiece)";
  }
};

inline void run(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

/// Some lines of text about ships.
inline std::string ship_text() {
  const std::vector<std::string> words = {"the",    "ship",    "oars",    "of",    "three", "banks", "row",
                                          "and",    "a",       "trireme", "sails", "with",  "wind",  "to",
                                          "Athens", "harbour", "fast",    "at",    "dawn",  "crew"};
  std::string text;
  std::uint32_t state = 1;
  for (int line = 0; line < 300; ++line) {
    for (int word = 0; word < 9; ++word) {
      state = state * 1664525u + 1013904223u;
      text += words[(state >> 16) % words.size()] + (word == 8 ? ".\n" : " ");
    }
  }
  return text;
}

/// Trains a tiny model with the options given; returns its path.
inline std::string train_spm(const TemporaryDirectory& dir, const std::string& options) {
  write_file(dir / "spm.txt", ship_text());
  run("spm_train --input=" + (dir / "spm.txt") + " --model_prefix=" + (dir / "spm") +
      " --hard_vocab_limit=false --minloglevel=2 --num_threads=1 " + options + " 2> /dev/null");
  return dir / "spm.model";
}

/// As spm_train does by default: white space is normalized away.
inline std::string train_unigram(const TemporaryDirectory& dir) {
  return train_spm(dir, "--model_type=unigram --vocab_size=120");
}

/// A model like Llama's: byte-pair encoding with byte fallback, every blank and line end kept.
inline std::string train_llama_like(const TemporaryDirectory& dir) {
  return train_spm(dir,
                   "--model_type=bpe --vocab_size=400 --byte_fallback=true --normalization_rule_name=identity "
                   "--remove_extra_whitespaces=false --split_digits=true");
}

}  // namespace trireme::data::test

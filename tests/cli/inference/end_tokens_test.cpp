// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/end_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "support/temporary_directory.hpp"

namespace trireme::cli::end_tokens_test {
namespace {

using ::testing::ElementsAre;

TEST(EndTokens, AreThoseOfTheModelAndStopsThatAreSpecial) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "tokenizer.json") << R"({
    "model": {"type": "BPE", "vocab": {"s": 0, "h": 1, "sh": 2, "</s>": 3, "<|eot|>": 4}, "merges": ["s h"]},
    "added_tokens": [{"id": 3, "content": "</s>", "special": true}, {"id": 4, "content": "<|eot|>", "special": true}]})";
  const auto tokenizer = tokenizer::make_tokenizer("hf:" + directory / "tokenizer.json");
  const std::vector<std::string> stops{"<|eot|>", "sh", "s<|eot|>"};
  EXPECT_THAT(end_tokens(*tokenizer, {}, stops), ElementsAre(4)) << "text is found in what is shown";
  const std::vector<std::int64_t> ids{3, 1};
  EXPECT_THAT(end_tokens(*tokenizer, ids, stops), ElementsAre(1, 3, 4));
  EXPECT_THAT(end_tokens(*tokenizer, {}, {}), ElementsAre());
  EXPECT_THAT(end_tokens(*tokenizer, std::vector<std::int64_t>{(std::int64_t{1} << 32) + 1}, {}), ElementsAre())
      << "no id of 32 bits";
}

}  // namespace
}  // namespace trireme::cli::end_tokens_test

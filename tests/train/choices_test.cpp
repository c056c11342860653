// SPDX-License-Identifier: Apache-2.0
#include "train/choices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <memory>

#include "support/temporary_directory.hpp"
#include "trireme/base/error.hpp"

namespace trireme::train::choices_test {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

TEST(Questions, AreReadFromJsonLines) {
  const auto questions = parse_questions(
      "{\"context\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 1}\n\n{\"ctx\": \"d\", \"endings\": [\"e\"], "
      "\"label\": \"0\", \"ind\": 7}",
      "q");
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions[0].endings, (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(questions[0].label, 1U);
  EXPECT_EQ(questions[1].context, "d");
  EXPECT_EQ(questions[1].label, 0U);
}

TEST(Questions, ThatAreNoneAreNamedByTheirLine) {
  const std::string deep = R"({"context": "a", "endings": ["b"], "label": )" + std::string(1'000'000, '[') +
                           std::string(1'000'000, ']') + "}";
  for (const auto& [line, said] :
       {std::pair{deep.c_str(), "q, line 1: not a JSON object"}, std::pair{"oops", "q, line 1: not a JSON object"},
        std::pair{"{\"endings\": [\"a\"]}", "\"context\" is missing or not a string"},
        std::pair{"{\"context\": \"a\", \"endings\": []}", "\"endings\" is missing or not a list"},
        std::pair{"{\"context\": \"a\", \"endings\": [\"\"], \"label\": 0}", "an ending is empty or not a string"},
        std::pair{"{\"context\": \"a\", \"endings\": [\"b\"]}", "\"label\" is not"},
        std::pair{"{\"context\": \"a\", \"endings\": [\"b\"], \"label\": -1}", "\"label\" is not"},
        std::pair{"\n \n", "q holds no questions"}}) {
    try {
      (void)parse_questions(line, "q");
      ADD_FAILURE() << line;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(said));
    }
  }
}

TEST(Choice, PutsABlankBetweenAndLeavesBlanksToTheEnding) {
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  const Choice plain = choice_of(*tokenizer, "ab", "cd", 100);
  EXPECT_EQ(plain.ids, (Ids{'a', 'b', ' ', 'c', 'd'}));
  EXPECT_EQ(plain.context, 2U);
  const Choice blank = choice_of(*tokenizer, "ab ", "c", 100);
  EXPECT_EQ(blank.ids, (Ids{'a', 'b', ' ', ' ', 'c'}));
  EXPECT_EQ(blank.context, 2U);
  const Choice empty = choice_of(*tokenizer, "", "c", 100);
  EXPECT_EQ(empty.ids, (Ids{256, ' ', 'c'}));
  EXPECT_EQ(empty.context, 1U);
}

TEST(Choice, KeepsTheEndOfWhatIsTooLong) {
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  const Choice cut = choice_of(*tokenizer, "abc", "de", 4);
  EXPECT_EQ(cut.ids, (Ids{'b', 'c', ' ', 'd', 'e'}));
  EXPECT_EQ(cut.context, 2U);
  const Choice ending_alone = choice_of(*tokenizer, "abc", "defg", 3);
  EXPECT_EQ(ending_alone.ids, (Ids{'d', 'e', 'f', 'g'}));
  EXPECT_EQ(ending_alone.context, 0U);
}

/// A BPE of whole texts, whose tokens reach over blanks.
std::unique_ptr<tokenizer::Tokenizer> joining_tokenizer(const test::TemporaryDirectory& directory) {
  const char* const json =
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":0,"content":"</s>","single_word":false,)"
      R"("lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":{"type":"Replace","pattern":)"
      R"({"String":" "},"content":"_"},"pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{"type":"BPE",)"
      R"("vocab":{"</s>":0,"x":1,"_":2,"a":3,"b":4,"_a":5,"x_a":6,"_b":7,"c":8},)"
      R"("merges":[["_","a"],["x","_a"],["_","b"]]}})";
  std::ofstream(directory / "tokenizer.json") << json;
  std::ofstream(directory / "tokenizer_config.json") << R"({"eos_token":"</s>"})";
  return tokenizer::make_tokenizer("hf:" + directory.path());
}

TEST(Choice, EncodesAnEndingAloneThatMergesIntoTheContextsLastToken) {
  const test::TemporaryDirectory directory;
  const auto tokenizer = joining_tokenizer(directory);
  const Choice merged = choice_of(*tokenizer, "x", "a", 100);
  EXPECT_EQ(merged.ids, (Ids{1, 5}));
  EXPECT_EQ(merged.context, 1U);
  const Choice plain = choice_of(*tokenizer, "x", "b", 100);
  EXPECT_EQ(plain.ids, (Ids{1, 7}));
  const Choice partly =
      choice_of(*tokenizer, "cx", "ab", 100);  // "x_a", "b": the harness counts from the context's size
  EXPECT_EQ(partly.ids, (Ids{8, 6, 4}));
  EXPECT_EQ(partly.context, 2U);
  const Choice empty = choice_of(*tokenizer, "", "a", 100);
  EXPECT_EQ(empty.ids, (Ids{0, 5}));
}

TEST(Choice, LeavesToTheEndingWhatPythonStrips) {
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  for (const std::string blank : {"\u3000", "\u00a0", "\u0085", "\u2000", "\u200a", "\u2028", "\u1680", "\u205f",
                                  "\x1c", "\x1f", " ", "\n\t", "\u202f \u2029"})
    EXPECT_EQ(choice_of(*tokenizer, "ab" + blank, "c", 100).context, 2U) << blank;
  for (const std::string letter : {"\u200b", "\u2060", "\ufeff", "\u00e9", "\u30a0", "\x1b", "\u180e"})
    EXPECT_EQ(choice_of(*tokenizer, "ab" + letter, "c", 100).context, 2 + letter.size()) << letter;
  EXPECT_EQ(choice_of(*tokenizer, "a\xe3\x80", "c", 100).context, 3U) << "half a character";
  EXPECT_EQ(choice_of(*tokenizer, "\u3000 ", "c", 100).context, 1U) << "nothing is left but the end of a document";
}

TEST(Pick, ComparesByLikelihoodAndByItPerCharacter) {
  const Question question{.context = "a", .endings = {"xy", "\u00e9\u00e9\u00e9\u00e9"}, .label = 1};
  const Picked per_character = pick(question, std::array{-3.0, -5.0});  // -1.5 and -1.25 a character, not -0.6 a byte
  EXPECT_FALSE(per_character.right);
  EXPECT_TRUE(per_character.right_norm);
  const Picked bytes_would_win = pick(question, std::array{-3.0, -7.0});
  EXPECT_FALSE(bytes_would_win.right_norm);
  const Picked first_of_equals = pick({.context = "a", .endings = {"x", "y"}, .label = 0}, std::array{-1.0, -1.0});
  EXPECT_TRUE(first_of_equals.right);
}

}  // namespace
}  // namespace trireme::train::choices_test

// Fault, numerics: multiple choice: an ending merges into the context's last token; Python's blanks -> as in
//   lm-evaluation-harness

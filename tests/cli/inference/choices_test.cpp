// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/choices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "trireme/base/error.hpp"

namespace trireme::cli::choices_test {
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
}  // namespace trireme::cli::choices_test

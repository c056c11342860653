// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/validation_sets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/sample_run.hpp"

namespace trireme::config::validation_sets_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const char* const two_sets =
    "[data.validation]\nweb = \"web.bin\"\ncode = [\"c.bin\", \"go.bin\"]\n[train]\neval_every = 2\n";

/// The smallest run file with these lines; its own [train] is theirs.
RunConfig with_lines(const std::string& lines) {
  std::string text = smallest_run;
  const std::size_t train = text.find("[train]");
  text.insert(train, lines.substr(0, lines.find("[train]")));
  return parse(text);
}

TEST(ValidationSets, AreOneWithoutANameOfAListOfFiles) {
  const Data data = with({"data.validation=[\"a.bin\", \"b.bin\"]"}).data;
  EXPECT_THAT(validation_sets(data), ElementsAre(""));
  EXPECT_EQ(validation_files(data, "").size(), 2U);
  EXPECT_THAT(validation_sets(with({}).data), IsEmpty());
}

TEST(ValidationSets, HaveTheNamesOfTheTable) {
  for (const Data& data : {with_lines(two_sets).data,
                           with({"data.validation={web = \"web.bin\", code = [\"c.bin\", \"go.bin\"]}"}).data}) {
    EXPECT_THAT(validation_sets(data), testing::UnorderedElementsAre("code", "web"));
    ASSERT_EQ(validation_files(data, "code").size(), 2U);
    EXPECT_EQ(validation_files(data, "code").back().path, "go.bin");
    EXPECT_EQ(validation_files(data, "web").front().path, "web.bin");
  }
}

TEST(ValidationSets, PrintAndReadBack) {
  for (const char* set : {"data.validation={web = \"web.bin\", code = [\"c.bin\", \"go.bin\"]}",
                          "data.validation={only = \"web.bin\"}", "data.validation=[\"a.bin\"]"}) {
    const std::string printed = print_run_file(with({set}));
    EXPECT_EQ(print_run_file(parse(printed)), printed) << set;
    EXPECT_EQ(validation_sets(parse(printed).data), validation_sets(with({set}).data));
  }
}

TEST(ValidationSets, RefuseWhatIsNoSet) {
  EXPECT_THAT(mistakes_with({"data.validation={\"a b\" = \"web.bin\"}"}), HasSubstr("letters, digits, _ and -"));
  EXPECT_THAT(mistakes_with({"data.validation={web = 3}"}), HasSubstr("web = 3 where it takes a path"));
  EXPECT_THAT(mistakes_with({"data.validation={}"}), HasSubstr("a table of named sets"));
  EXPECT_THAT(mistakes_with({"data.validation={web = \"*.bin\"}"}), HasSubstr("wildcards are not expanded"));
}

TEST(Choices, AreFilesInSets) {
  const std::vector<std::string> needed{"train.eval_every=2", "data.validation=v.bin", "data.tokenizer=bytes"};
  const auto with_choices = [&](const std::string& value, const std::string& more = "train.choices_limit=5") {
    std::vector<std::string> keys = needed;
    keys.push_back("data.choices=" + value);
    keys.push_back(more);
    return keys;
  };
  const RunConfig named = with(with_choices("{a = \"a.jsonl\", b = [\"b.jsonl\", \"c.jsonl\"]}"));
  EXPECT_THAT(set_names(named.data.choices), testing::UnorderedElementsAre("a", "b"));
  EXPECT_EQ(files_of_set(named.data.choices, "b").back().path, "c.jsonl");
  EXPECT_EQ(print_run_file(parse(print_run_file(named))), print_run_file(named));
  EXPECT_THAT(set_names(with(with_choices("a.jsonl")).data.choices), ElementsAre(""));
  for (const char* wrong : {"*.jsonl", "web/", "a.jsonl#field=b", "{\"a b\" = \"a.jsonl\"}", "[]", "{}", "3"})
    EXPECT_THAT(mistakes_with(with_choices(wrong)), HasSubstr("data.choices")) << wrong;
  EXPECT_EQ(mistakes_with(with_choices("a.jsonl", "train.choices_every=4")), "");
  EXPECT_THAT(mistakes_with(with_choices("a.jsonl", "train.choices_every=3")),
              HasSubstr("choices_every 3 is not a multiple of eval_every 2: choices are scored at evaluations; set 4"));
  EXPECT_EQ(mistakes_with({"data.choices=a.jsonl", "data.tokenizer=bytes"}), "") << "as data.validation";
  EXPECT_THAT(mistakes_with({"data.choices=a.jsonl", "data.tokenizer=bytes", "train.choices_every=3"}),
              HasSubstr("choices_every requires train.eval_every"));
  EXPECT_THAT(mistakes_with({"data.choices=a.jsonl"}), HasSubstr("need data.tokenizer"));
  EXPECT_THAT(mistakes_with({"train.choices_limit=3"}), HasSubstr("are of data.choices"));
}

TEST(KeepBest, IsOfAllSetsOrOfOne) {
  const auto best = [](const std::string& value) {
    return with({"train.eval_every=2", "data.validation={web = \"w.bin\", code = \"c.bin\"}",
                 "checkpoint.keep_best=" + value})
        .checkpoint.keep_best;
  };
  EXPECT_EQ(best("true"), "");
  EXPECT_EQ(best("code"), "code");
  EXPECT_EQ(best("false"), std::nullopt);
  EXPECT_EQ(with({}).checkpoint.keep_best, std::nullopt);
  EXPECT_EQ(parse(std::string(smallest_run) + "[checkpoint]\nkeep_best = false\n").checkpoint.keep_best, std::nullopt);
}

TEST(KeepBest, NeedsEvaluationsAndASetThatIsThere) {
  EXPECT_THAT(mistakes_with({"checkpoint.keep_best=true"}), HasSubstr("keep_best requires train.eval_every > 0"));
  EXPECT_THAT(mistakes_with({"checkpoint.keep_best=wed", "train.eval_every=2", "data.validation={web = \"w.bin\"}"}),
              HasSubstr("\"wed\" is not a set of data.validation, whose sets are web"));
  EXPECT_THAT(mistakes_with({"checkpoint.keep_best=web", "train.eval_every=2", "data.validation=w.bin"}),
              HasSubstr("are not named"));
}

}  // namespace
}  // namespace trireme::config::validation_sets_test

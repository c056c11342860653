// SPDX-License-Identifier: Apache-2.0
//
// ranks: 1 2 4
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "data/files.hpp"
#include "support/shared_directory.hpp"
#include "trireme/base/log.hpp"
#include "trireme/data/token_cache.hpp"
#include "trireme/data/tokenize_together.hpp"

namespace trireme::data::tokenize_together_mpi_test {
namespace {

namespace fs = std::filesystem;

std::string lines_of_text(int count, int seed) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format(R"({{"text": "{}", "prompt": "q{}", "messages": [{{"role": "user", "content": "a{}"}},)"
                        R"( {{"role": "assistant", "content": "b{}"}}]}})",
                        std::string(static_cast<std::size_t>((i * 37 + seed) % 211), static_cast<char>('a' + i % 26)),
                        i, i, i * seed) +
            "\n";
  return text;
}

void write_gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

class Together : public testing::Test {
 protected:
  Together() {
    if (world_.rank() == 0) {
      test::write_file(dir_.path() + "/a.jsonl", lines_of_text(9000, 3));  // more than three units
      write_gzip(dir_.path() + "/b.jsonl.gz", lines_of_text(3000, 5));
      test::write_file(dir_.path() + "/c.jsonl", lines_of_text(20, 7));
    }
    MPI_Barrier(world_.handle());
    inputs_ = {dir_.path() + "/a.jsonl", dir_.path() + "/b.jsonl.gz", dir_.path() + "/c.jsonl"};
  }

  [[nodiscard]] TokenizedTogether tokenize(const std::string& output, const TokenizeOptions& options) const {
    return tokenize_together(world_, *tokenizer_, inputs_, output, options,
                             {.parts = dir_.path() + "/parts", .described = "test"});
  }
  /// Rank 0 compares the files that both wrote.
  void expect_equal(const std::string& one, const std::string& other, bool masked) const {
    if (world_.rank() != 0) return;
    std::vector<std::string> ends{"", ".ends", ".meta"};
    if (masked) ends.emplace_back(".mask");
    for (const std::string& end : ends)
      EXPECT_TRUE(test::file_bytes(one + end) == test::file_bytes(other + end)) << one + end;
    EXPECT_EQ(fs::exists(one + ".mask"), masked);
  }
  void remove_parts() const {
    MPI_Barrier(world_.handle());
    if (world_.rank() == 0) fs::remove_all(dir_.path() + "/parts");
    MPI_Barrier(world_.handle());
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  trireme::test::SharedDirectory dir_{world_};
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = tokenizer::make_tokenizer("bytes");
  std::vector<std::string> inputs_;
};

TEST_F(Together, WritesTheBytesOfOneProcess) {
  struct Case {
    TokenizeOptions options;
    std::string end;
  };
  const std::vector<Case> cases{
      {{.spec = "bytes", .field = "text"}, ".bin"},
      {{.spec = "bytes", .field = "text", .validation = 0.01}, ".idx"},
      {{.spec = "bytes", .field = "prompt", .response = "text", .threads = 2}, ".bin"},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [options, end] = cases[i];
    const std::string one = fmt::format("{}/one{}", dir_.path(), i), all = fmt::format("{}/all{}", dir_.path(), i);
    if (world_.rank() == 0) (void)tokenize_files(*tokenizer_, inputs_, one + end, options);
    const TokenizedTogether made = tokenize(all + end, options);
    const bool masked = !options.response.empty();
    expect_equal(all + ".bin", one + ".bin", masked);
    EXPECT_EQ(std::ssize(made.work_bytes), world_.rank() == 0 ? world_.size() : 0);
    if (end == ".idx" && world_.rank() == 0) {
      EXPECT_TRUE(test::file_bytes(one + ".idx") == test::file_bytes(all + ".idx"));
      EXPECT_TRUE(test::file_bytes(one + "-validation.bin") == test::file_bytes(all + "-validation.bin"));
    }
    remove_parts();
  }
}

TEST_F(Together, ContinuesFromPartsAndEndsOnAllRanksWithTheNumberOfABadLine) {
  const TokenizeOptions options{.spec = "bytes", .field = "text"};
  if (world_.rank() == 0) {
    std::string text = test::file_bytes(inputs_[0]);
    const std::size_t at = text.find('\n', text.size() - 2000);
    std::string bad = text;
    bad[at + 1] = '!';
    test::write_file(dir_.path() + "/bad.jsonl", bad);
  }
  MPI_Barrier(world_.handle());
  const std::string bytes = test::file_bytes(dir_.path() + "/bad.jsonl");
  const std::int64_t line =
      std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes.rfind("\n!")), '\n') + 2;
  std::swap(inputs_[0], inputs_.emplace_back(dir_.path() + "/bad.jsonl"));
  inputs_.pop_back();
  test::expect_parts(test::error_of(ExitCode::data, [&] { (void)tokenize(dir_.path() + "/bad.bin", options); }),
                     {fmt::format("bad.jsonl, line {}: it is not a JSON object", line)});
  const bool kept = fs::exists(dir_.path() + "/parts/part-0000000");
  EXPECT_TRUE(kept) << "the parts that were complete are gone";
  TokenizeOptions lenient = options;
  lenient.skip_bad = 1;
  if (world_.rank() == 0) (void)tokenize_files(*tokenizer_, inputs_, dir_.path() + "/one.bin", lenient);
  (void)tokenize(dir_.path() + "/all.bin", lenient);
  expect_equal(dir_.path() + "/all.bin", dir_.path() + "/one.bin", false);
}

class Cache : public Together {
 protected:
  Cache() {
    setenv("TRIREME_CACHE", (dir_.path() + "/user").c_str(), 1);
    config_.data.tokenizer = "bytes";
    config_.data.train = {{.path = dir_.path() + "/*.jsonl*"}};
  }

  [[nodiscard]] std::string path() {
    made_ = 0;
    const auto previous = log::set_sink({});
    log::set_sink([this](log::Level, std::string_view line) {
      if (line.find(" tokens of ") != std::string_view::npos) ++made_;
    });
    const config::RunConfig run = with_token_caches(world_, config_, {});
    log::set_sink(previous);
    EXPECT_EQ(run.data.train.size(), 1U);
    MPI_Barrier(world_.handle());
    return run.data.train.front().path;
  }
  [[nodiscard]] bool made() const { return world_.rank() != 0 || made_ > 0; }

  config::RunConfig config_;
  int made_ = 0;
};

TEST_F(Cache, IsMadeOnceAndFoundByMetadataUntilContentsChange) {
  const std::string first = path();
  EXPECT_TRUE(made());
  EXPECT_TRUE(first.starts_with(dir_.path() + "/.trireme-tokens/")) << first;
  if (world_.rank() == 0) {
    (void)tokenize_files(*tokenizer_, inputs_, dir_.path() + "/one.bin", {.spec = "bytes", .field = "text"});
    expect_equal(first, dir_.path() + "/one.bin", false);
  }
  EXPECT_EQ(path(), first);
  EXPECT_TRUE(world_.rank() != 0 || made_ == 0) << "it was made again";
  const auto touch = [&] { fs::last_write_time(inputs_[2], fs::file_time_type::clock::now()); };
  if (world_.rank() == 0) touch();
  EXPECT_EQ(path(), first) << "the contents are the same";
  EXPECT_TRUE(world_.rank() != 0 || made_ == 0);
  if (world_.rank() == 0) {
    std::string text = test::file_bytes(inputs_[2]);
    text[text.find("aaa")] = 'z';
    test::write_file(inputs_[2], text);
    touch();
  }
  const std::string second = path();
  EXPECT_NE(second, first);
  EXPECT_TRUE(made());
  EXPECT_TRUE(fs::exists(first)) << "a run may still read it";
  EXPECT_FALSE(fs::exists(fs::path(first).parent_path().parent_path() / "part"));
  for (const auto& entry : fs::directory_iterator(dir_.path() + "/.trireme-tokens"))
    EXPECT_NE(entry.path().extension(), ".building");
}

TEST_F(Cache, TextsInARowShareOneStreamAndWeightedOnesDoNot) {
  config_.data.train = {{.path = inputs_[0]}, {.path = inputs_[1]}, {.path = inputs_[2]}};
  EXPECT_FALSE(path().empty());
  config_.data.weighted = true;
  EXPECT_EQ(with_token_caches(world_, config_, {}).data.train.size(), 3U);
  config_.data.weighted = false;
  config_.data.train[1].path += "#field=prompt";
  EXPECT_EQ(with_token_caches(world_, config_, {}).data.train.size(), 3U);
}

TEST_F(Cache, OtherOptionsMakeAnotherCache) {
  const std::string first = path();
  config_.data.train = {{.path = dir_.path() + "/*.jsonl*#field=prompt,cache=" + dir_.path() + "/here"}};
  const std::string second = path();
  EXPECT_TRUE(second.starts_with(dir_.path() + "/here/")) << second;
  EXPECT_NE(fs::path(first).parent_path().filename(), fs::path(second).parent_path().filename());
}

}  // namespace
}  // namespace trireme::data::tokenize_together_mpi_test

// Fault, data: text of `data.train` changes after it was tokenized -> another cache is made; one with another time
//   alone is hashed and kept

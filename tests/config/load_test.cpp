// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "config/sample_run.hpp"
#include "support/temporary_directory.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/config/overrides.hpp"

namespace trireme::config {
namespace {

using testing::HasSubstr;

TEST(LoadRunFile, CompletesDefaultsThatDependOnOtherKeys) {
  const RunConfig config = parse(smallest_run + "[run]\nname = \"first\"\nseed = 7\n");
  EXPECT_EQ(config.run.output, "runs/first");
  EXPECT_EQ(config.checkpoint.directory, "runs/first/checkpoints");
  EXPECT_EQ(config.model.kv_heads, 4);
  EXPECT_EQ(config.model.head_dim, 16);
  EXPECT_EQ(config.data.seed, 7U);
  EXPECT_EQ(config.lr.end_step, 10);
  EXPECT_EQ(config.mesh.sequence_parallel, false);
  EXPECT_EQ(config.mesh.shard, -1);
}

TEST(LoadRunFile, ReadsEveryFormOfTokenFiles) {
  const auto train = [](const std::string& value) { return with({"data.train=" + value}).data; };
  EXPECT_EQ(train("a.bin").train.at(0).path, "a.bin");
  EXPECT_EQ(train("[\"a.bin\", \"b.bin\"]").train.at(1).path, "b.bin");
  EXPECT_FALSE(train("[\"a.bin\", \"b.bin\"]").weighted);
  const Data mixed = train("[{path = \"a.bin\", weight = 3}, {path = \"b.bin\", weight = 0.5}]");
  EXPECT_TRUE(mixed.weighted);
  EXPECT_EQ(mixed.train.at(0).weight, 3.0);
  EXPECT_EQ(mixed.train.at(1).path, "b.bin");
}

TEST(LoadRunFile, RefusesWildcardsInTokenFiles) {
  for (const char* set : {"data.train=data/*.bin", "data.train=[\"a.bin\", \"b?.bin\"]", "data.validation=*.bin"})
    EXPECT_THAT(mistakes_with({set}), HasSubstr("wildcards are not expanded")) << set;
}

TEST(LoadRunFile, ReadsReshardAfterForwardAsFlagOrGroup) {
  EXPECT_EQ(with({"sync.reshard_after_forward=true"}).sync.reshard_after_forward, 0);
  EXPECT_EQ(with({"sync.reshard_after_forward=false"}).sync.reshard_after_forward, 1);
  EXPECT_EQ(with({"sync.reshard_after_forward=1"}).sync.reshard_after_forward, 1);
  EXPECT_EQ(with({"sync.reshard_after_forward=2"}).sync.reshard_after_forward, 2);
  EXPECT_THAT(mistakes_with({"sync.reshard_after_forward=0"}), HasSubstr("group size"));
}

TEST(LoadRunFile, ReadsBytesAsIntegersOrWithUnits) {
  EXPECT_EQ(with({"sync.prefetch_bytes=4096"}).sync.prefetch_bytes, Bytes{4096});
  EXPECT_EQ(with({"sync.prefetch_bytes=40GiB"}).sync.prefetch_bytes, Bytes{40LL << 30});
  EXPECT_EQ(with({}).sync.prefetch_bytes, std::nullopt);
}

TEST(LoadRunFile, ReadsLlamaThreeRopeScaling) {
  const RunConfig config = parse(smallest_run + "[model.rope_scaling]\nrope_type = \"llama3\"\nfactor = 32\n");
  ASSERT_TRUE(config.model.rope_scaling.has_value());
  EXPECT_EQ(config.model.rope_scaling->factor, 32.0);
  EXPECT_EQ(config.model.rope_scaling->high_freq_factor, 4.0);
  EXPECT_THAT(mistakes_with({"model.rope_scaling={rope_type=\"ntk\"}"}), HasSubstr("rope_type = \"ntk\""));
  EXPECT_THAT(mistakes_with({"model.rope_scaling={rope_type=\"linear\", beta_fast=3}"}),
              HasSubstr("beta_fast = 3 where it takes one of rope_type, factor"));
  EXPECT_THAT(mistakes_with({"model.rope_scaling={rope_type=\"yarn\", beta_fast=1, beta_slow=2}"}),
              HasSubstr("beta_slow below beta_fast"));
  EXPECT_THAT(mistakes_with({"model.layer_types=[\"sliding\"]"}), HasSubstr("\"sliding_attention\""));
  EXPECT_THAT(mistakes_with({"model.rope_scaling={factor=8}"}), HasSubstr("rope_type is missing"));
}

TEST(LoadRunFile, LetsSizesBeLeftOutWithModelFrom) {
  const std::string text = "[data]\ntrain=\"a\"\nseq_len=8\n[batch]\nglobal=1\nmicro=1\n[train]\nsteps=1\n";
  EXPECT_EQ(parse(text, {"model.from=weights"}).model.vocab_size, 0);
  EXPECT_THAT(mistakes_of(text), HasSubstr("model.vocab_size: missing"));
  EXPECT_THAT(mistakes_of(text, {"model.from="}), HasSubstr("model.vocab_size: missing"));
}

TEST(LoadRunFile, ExpandsVariablesInPaths) {
  setenv("TRIREME_TEST_DIR", "/scratch/me", 1);
  unsetenv("TRIREME_TEST_UNSET");
  EXPECT_EQ(with({"data.train=${TRIREME_TEST_DIR}/a.bin"}).data.train.at(0).path, "/scratch/me/a.bin");
  EXPECT_EQ(with({"run.output=x$${y}"}).run.output, "x${y}");
  EXPECT_THAT(mistakes_with({"run.output=${TRIREME_TEST_UNSET}/a"}), HasSubstr("\"TRIREME_TEST_UNSET\" is not"));
  EXPECT_THAT(mistakes_with({"run.output=${TRIREME_TEST_DIR"}), HasSubstr("closed by }"));
}

class RunFiles : public testing::Test {
 protected:
  [[nodiscard]] std::string file_with(std::string_view content) const {
    std::string path = directory / "run.toml";
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  static std::string refusal_of(const std::string& path) {
    try {
      (void)load_run_file(path);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_THAT(error.what(), HasSubstr(path));
      return error.what();
    }
    return "";
  }
  const test::TemporaryDirectory directory;
};

TEST(LoadRunFile, ReadsTheInputsOfTheRepository) {
  for (const std::string name : {"quickstart.toml", "quickstart-mixture.toml"}) {
    const RunConfig config = load_run_file(TRIREME_SOURCE_DIR "/inputs/" + name);
    for (const int ranks : {1, 2, 4}) EXPECT_EQ(resolve(config, ranks).accumulation, 4 / ranks) << name;
  }
}

TEST(LoadRunFile, ReadsOrRefusesWhateverDamageIsDone) {
  const std::uint64_t key = stream_key(1, "damage");
  for (std::uint64_t round = 0; round < 3000; ++round) {
    std::string text = smallest_run;
    for (std::uint64_t hit = 0; hit < 1 + round % 5; ++hit) {
      const auto words = philox4x32(key, round, hit);
      const std::size_t at = words[0] % text.size();
      if (words[1] % 3 == 0) text[at] = static_cast<char>(words[2]);
      if (words[1] % 3 == 1) text.erase(at, words[2] % 20);
      if (words[1] % 3 == 2) text.insert(at, text.substr(words[2] % text.size(), words[3] % 20));
      if (text.empty()) break;
    }
    try {
      (void)parse(text);
    } catch (const ConfigError&) {
      continue;  // any other exception fails the test
    }
  }
}

TEST_F(RunFiles, AreReadFromDisk) { EXPECT_EQ(load_run_file(file_with(smallest_run)).train.steps, 10); }

TEST_F(RunFiles, ThatCannotBeRunFilesAreRefusedByName) {
  EXPECT_THAT(refusal_of(directory / "missing.toml"), HasSubstr("No such file or directory"));
  EXPECT_THAT(refusal_of(directory.path()), HasSubstr("it is a directory"));
  EXPECT_THAT(refusal_of(file_with("")), HasSubstr("is empty"));
  EXPECT_THAT(refusal_of(file_with(" \n\n")), HasSubstr("is empty"));
  EXPECT_THAT(refusal_of(file_with(std::string("\x7f"
                                               "ELF\0\0\1",
                                               7))),
              HasSubstr("not a text file"));
  EXPECT_THAT(refusal_of(file_with("\xff\xfe\x80\x81 = 3\n")), HasSubstr("not valid TOML"));
  EXPECT_THAT(refusal_of(file_with(std::string(5000, '['))), HasSubstr("not valid TOML"));
  std::string parts = "a";
  while (parts.size() < 600'000) parts += " . \"b\".c";
  EXPECT_THAT(refusal_of(file_with(parts + " = 1")), HasSubstr("a key has too many parts"));
  EXPECT_THAT(refusal_of(file_with("[" + parts + "]")), HasSubstr("a key has too many parts"));
  EXPECT_THAT(mistakes_with({"data.validation={" + parts + " = 1}"}), HasSubstr("a key has too many parts"));
  EXPECT_EQ(with({"data.train=a.b.c.d.e.f.g.h.i.j.bin"}).data.train.at(0).path, "a.b.c.d.e.f.g.h.i.j.bin");
  EXPECT_EQ(load_run_file(file_with(std::string("# 1.2.3.4.5.6.7.8.9.10\n") + smallest_run)).train.steps, 10);
}

TEST_F(RunFiles, OfAHundredMegabytesAreRefusedUnread) {
  const std::string path = file_with(smallest_run);
  std::filesystem::resize_file(path, 100 << 20);  // sparse
  EXPECT_THAT(refusal_of(path), HasSubstr("larger than 1 MiB"));
  EXPECT_THAT(refusal_of("/dev/zero"), HasSubstr("it is a device"));
}

TEST_F(RunFiles, ThatAreNoRegularFilesAreRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal_of(directory / "fifo"), HasSubstr("fifo: cannot read the run file: it is a FIFO"));
}

TEST(ReadOverrides, TakesWhatIsRightAndLeavesTheRestAtItsDefault) {
  EXPECT_EQ(read_overrides({}).comm.timeout_seconds, Comm{}.timeout_seconds);
  EXPECT_EQ(read_overrides({"comm.timeout_seconds=4", "train.steps=12"}).comm.timeout_seconds, 4);
  EXPECT_EQ(read_overrides({"comm.timeout_seconds=9", "comm.timeout_seconds=3"}).comm.timeout_seconds, 3);
  for (const char* wrong : {"comm.timeout_seconds=0", "comm.timeout_seconds=soon", "comm.timeout=4", "nonsense"})
    EXPECT_EQ(read_overrides({wrong}).comm.timeout_seconds, Comm{}.timeout_seconds) << wrong;
}

}  // namespace
}  // namespace trireme::config

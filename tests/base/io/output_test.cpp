// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/output.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <thread>

#include "huggingface/files.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/atomic_file.hpp"
#include "trireme/base/io/descriptor.hpp"
#include "trireme/base/io/file.hpp"

namespace trireme::io::output_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Outputs : public testing::Test {
 protected:
  [[nodiscard]] std::string put(const std::string& name, const std::string& text) const {
    huggingface::put_file(root_ / name, text);
    return root_ / name;
  }
  [[nodiscard]] std::string fifo(const std::string& name) const {
    EXPECT_EQ(::mkfifo((root_ / name).c_str(), 0600), 0);
    return root_ / name;
  }
  [[nodiscard]] std::string link(const std::string& target, const std::string& name) const {
    fs::create_symlink(target, root_ / name);
    return root_ / name;
  }
  static bool is_fifo(const std::string& path) { return fs::is_fifo(fs::symlink_status(path)); }

  const test::TemporaryDirectory root_;
};

TEST_F(Outputs, FollowLinksToAFileThatIsThereOrNotYet) {
  const std::string file = put("file", "old");
  replace_text(link("file", "link"), "new");
  EXPECT_EQ(huggingface::get_file(file), "new");
  EXPECT_TRUE(fs::is_symlink(root_ / "link"));
  replace_text(link("later", "to_nothing"), "made");
  EXPECT_EQ(huggingface::get_file(root_ / "later"), "made");
  AtomicFile atomic(root_ / "link");
  atomic.write(std::string_view("newer"));
  atomic.close();
  atomic.publish();
  EXPECT_EQ(huggingface::get_file(file), "newer");
  EXPECT_TRUE(fs::is_symlink(root_ / "link"));
  fs::create_symlink("b", root_ / "a");
  fs::create_symlink("a", root_ / "b");
  EXPECT_THROW(replace_text(root_ / "a", ""), WriteError) << "a loop";
}

TEST_F(Outputs, AreWrittenIntoDevicesAndPipesWhichStay) {
  replace_text("/dev/null", "text");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  replace_text(link("/dev/null", "nothing"), "text");
  EXPECT_TRUE(fs::is_symlink(root_ / "nothing"));
  EXPECT_THROW(replace_text("/dev/full", "text"), WriteError);
  const std::string pipe = fifo("pipe");
  std::string got(4, '\0');
  std::jthread reader([&] {
    const Descriptor end(::open(pipe.c_str(), O_RDONLY));
    for (std::size_t at = 0; at < got.size();) {
      const ssize_t count = ::read(end.get(), got.data() + at, got.size() - at);
      if (count <= 0) break;
      at += static_cast<std::size_t>(count);
    }
  });
  replace_text(pipe, "text");
  reader.join();
  EXPECT_EQ(got, "text");
  EXPECT_TRUE(is_fifo(pipe));
  EXPECT_THROW(replace_text(pipe, "text"), WriteError) << "without a reader it fails, and does not wait";
  EXPECT_THROW(AtomicFile{pipe}, WriteError);
}

TEST_F(Outputs, AreNeverRenamedOverWhatIsNoFile) {
  const std::string text = put("text", "mine");
  const std::string pipe = fifo("pipe");
  EXPECT_THROW(rename_over(text, pipe), WriteError);
  EXPECT_TRUE(is_fifo(pipe));
  fs::create_directory(root_ / "folder");
  EXPECT_THROW(rename_over(text, root_ / "folder"), WriteError);
  rename_over(text, link("elsewhere", "link"));
  EXPECT_EQ(huggingface::get_file(root_ / "link"), "mine");
  EXPECT_FALSE(fs::exists(root_ / "elsewhere"));
}

TEST_F(Outputs, RemoveWhatLiesUnderATemporaryNameAndFollowNoLink) {
  const std::string victim = put("victim", "untouched");
  (void)link("victim", "file.partial");
  {
    AtomicFile file(root_ / "file");
    file.write(std::string_view("text"));
    file.close();
    file.publish();
  }
  EXPECT_EQ(huggingface::get_file(root_ / "file"), "text");
  (void)link("victim", "probe");
  write_text(root_ / "probe", "text");
  EXPECT_EQ(huggingface::get_file(root_ / "probe"), "text");
  EXPECT_FALSE(fs::is_symlink(root_ / "probe"));
  EXPECT_EQ(huggingface::get_file(victim), "untouched");
}

TEST_F(Outputs, WaitForNoReaderOfAFifoUnderATemporaryName) {
  (void)fifo("file.partial");
  {
    AtomicFile file(root_ / "file");
    file.write(std::string_view("text"));
    file.close();
    file.publish();
  }
  (void)fifo("probe");
  write_text(root_ / "probe", "text");
  EXPECT_EQ(huggingface::get_file(root_ / "probe"), "text");
  fs::create_directory(root_ / "folder.partial");
  EXPECT_THROW(AtomicFile{root_ / "folder"}, WriteError);
  EXPECT_THROW(write_text(root_ / "folder.partial", ""), WriteError);
}

TEST_F(Outputs, ReplaceNoInputByWhateverName) {
  const std::string input = put("input", "mine");
  fs::create_hard_link(input, root_ / "hard");
  const std::array inputs{std::string(), std::string(root_ / "missing"), input};
  for (const std::string& output : {input, link("input", "soft"), std::string(root_ / "hard"), root_ / "./input"}) try {
      check_output_is_no_input("report", output, inputs);
      ADD_FAILURE() << output;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("report would replace its own input " + input));
    }
  check_output_is_no_input("report", root_ / "other", inputs);
  const std::array device{std::string("/dev/null")};
  check_output_is_no_input("report", "/dev/null", device);
}

TEST_F(Outputs, ListTheFilesOfAModel) {
  fs::create_directories(root_ / "model/shards");
  for (const char* name : {"config.json", "a.safetensors", "logits.bin", "COMMIT", "shards/dp-00000-tp-00.h5"})
    (void)put(std::string("model/") + name, "");
  const std::string at = root_ / "model";
  EXPECT_THAT(files_of_model(at), testing::UnorderedElementsAre(at, at + "/config.json", at + "/a.safetensors",
                                                                at + "/COMMIT", at + "/shards/dp-00000-tp-00.h5"));
}

}  // namespace
}  // namespace trireme::io::output_test

// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "huggingface/files.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/atomic_file.hpp"
#include "trireme/base/io/input_file.hpp"

namespace trireme::io {
namespace {

using test::TemporaryDirectory;

namespace fs = std::filesystem;

TEST(ReplaceText, LeavesNoTemporaryFileAndNoOtherJobsFileTouched) {
  const TemporaryDirectory root;
  huggingface::put_file(root / "run.toml.partial", "another job's");
  replace_text(root / "run.toml", "first");
  replace_text(root / "run.toml", "second");
  EXPECT_EQ(huggingface::get_file(root / "run.toml"), "second");
  EXPECT_EQ(huggingface::get_file(root / "run.toml.partial"), "another job's");
  EXPECT_EQ(root.names(), (std::vector<std::string>{"run.toml", "run.toml.partial"}));
}

TEST(ReplaceText, IsNeverSeenHalfDone) {
  const TemporaryDirectory root;
  const std::vector<std::string> texts{std::string(100'000, 'a'), std::string(50'000, 'b')};
  replace_text(root / "file", texts[0]);
  {
    std::vector<std::jthread> writers;
    for (const std::string& text : texts)
      writers.emplace_back([&] {
        for (int i = 0; i < 20; ++i) replace_text(root / "file", text);
      });
    for (int i = 0; i < 200; ++i) {
      const std::string seen = huggingface::get_file(root / "file");
      EXPECT_TRUE(seen == texts[0] || seen == texts[1]) << seen.size() << " bytes";
    }
  }
  EXPECT_EQ(root.names(), std::vector<std::string>{"file"});
}

TEST(ReplaceText, ThatFailsLeavesTheFileAsItWas) {
  const TemporaryDirectory root;
  fs::create_directory(root / "file");  // a file does not take a directory's place
  EXPECT_THROW(replace_text(root / "file", "text"), WriteError);
  EXPECT_EQ(root.names(), std::vector<std::string>{"file"});
}

TEST(ReadText, OfAFifoIsRefusedAtOnce) {
  const TemporaryDirectory root;
  ASSERT_EQ(::mkfifo((root / "COMMIT").c_str(), 0600), 0);
  EXPECT_THROW((void)read_text(root / "COMMIT", 100), CheckpointError);
}

TEST(ReadText, RefusesWhatIsLargerThanItMayBe) {
  const TemporaryDirectory root;
  huggingface::put_file(root / "COMMIT", std::string(101, 'x'));
  EXPECT_NE(huggingface::message_of<CheckpointError>([&] {
              (void)read_text(root / "COMMIT", 100);
            }).find("has 101 bytes, at most 100 are expected"),
            std::string::npos);
  EXPECT_EQ(read_text(root / "COMMIT", 101).size(), 101);
}

TEST(ReadText, AllocatesNothingForHoles) {
  const TemporaryDirectory root;
  huggingface::put_file(root / "index.h5", std::string(5000, 'x'));
  constexpr std::int64_t bytes = 80 << 20;
  fs::resize_file(root / "index.h5", bytes);
  const File file = File::open(root / "index.h5");
  if (file.stored_bytes() == bytes) {  // a file system that does not show its holes: they are zeros like others
    EXPECT_EQ(read_text(root / "index.h5", bytes).size(), bytes);
    return;
  }
  EXPECT_LT(file.stored_bytes(), 1 << 20);
  EXPECT_NE(huggingface::message_of<CheckpointError>([&] { (void)read_text(root / "index.h5", bytes); }).find("holes"),
            std::string::npos);
}

TEST(StatusOf, SeparatesAbsentFromUnreadable) {
  const TemporaryDirectory root;
  huggingface::put_file(root / "file", "1234");
  EXPECT_EQ(status_of(root / "none").kind, PathKind::nothing);
  EXPECT_EQ(status_of(root / "file/below").kind, PathKind::nothing);
  EXPECT_EQ(status_of(root / "file").bytes, 4);
  EXPECT_EQ(status_of(root.path()).kind, PathKind::directory);
  EXPECT_THROW((void)status_of(root / std::string(5000, 'x')), ReadError);  // ENAMETOOLONG
}

TEST(LongNames, AreReportedWithTheirRemedy) {
  const TemporaryDirectory root;
  const std::string path = root / std::string(300, 'x');
  const std::vector<std::string> parts{"xxx", "File name too long; give it a shorter name (255 bytes at most"};
  using huggingface::expect_parts, huggingface::message_of;
  expect_parts(message_of<ReadError>([&] { (void)status_of(path); }), parts);
  expect_parts(message_of<ReadError>([&] { (void)File::open(path); }), parts);
  expect_parts(message_of<DataError>([&] { (void)InputFile(path, "text file"); }), parts);
  expect_parts(message_of<WriteError>([&] { replace_text(path, "text"); }), parts);
  expect_parts(message_of<WriteError>([&] { (void)AtomicFile(path); }), parts);
  EXPECT_EQ(root.names(), std::vector<std::string>{});
}

}  // namespace
}  // namespace trireme::io

// Fault, loading: `COMMIT` or index is a FIFO or a file of holes -> refused; nothing is allocated by its size

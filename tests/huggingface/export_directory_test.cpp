// SPDX-License-Identifier: Apache-2.0
//
// rename is watched: after each, the directory that an export replaces has to be there.
#include "huggingface/export_directory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "huggingface/files.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"

namespace {
std::string watched;  ///< a path
int absences = 0;     ///< times that it was not there after a rename
}  // namespace

extern "C" int rename(const char* from, const char* to) noexcept {
  const long result = ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0U);
  if (!watched.empty() && ::access(watched.c_str(), F_OK) != 0) ++absences;
  return static_cast<int>(result);
}

namespace trireme::huggingface {
namespace {

namespace fs = std::filesystem;

void publish(const std::string& directory, const std::string& text) {
  ExportDirectory out(directory);
  put_file(out.file("config.json"), text);
  out.publish();
}

TEST(ExportDirectory, IsReplacedWithoutAMomentInWhichThereIsNone) {
  const TemporaryDirectory root;
  publish(root / "export", "first");
  watched = root / "export";
  absences = 0;
  for (const std::string text : {"second", "third"}) publish(root / "export", text);
  watched.clear();
  EXPECT_EQ(absences, 0);
  EXPECT_EQ(get_file(root / "export/config.json"), "third");
  EXPECT_EQ(root.names(), std::vector<std::string>{"export"});
}

TEST(ExportDirectory, ComesBackAfterAKillWhereTheTwoCannotBeExchanged) {
  const TemporaryDirectory root;
  put_file(root / ".export.old/config.json", "first");
  put_file(root / ".export.partial/config.json", "second");
  {
    const ExportDirectory out(root / "export");
    EXPECT_EQ(get_file(root / "export/config.json"), "first");
  }
  EXPECT_EQ(root.names(), std::vector<std::string>{"export"});
}

TEST(ExportDirectory, IsNotReplacedWithUnknownContents) {
  const TemporaryDirectory root;
  put_file(root / "mine/notes.txt", "of a user");
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = files.rlim_max};
  const std::string message = message_of<io::ReadError>([&] {
    ::setrlimit(RLIMIT_NOFILE, &none);
    try {
      ExportDirectory::check(root / "mine", true);
    } catch (...) {
      ::setrlimit(RLIMIT_NOFILE, &files);  // first: sanitizers need descriptors to look at what is caught
      throw;
    }
    ::setrlimit(RLIMIT_NOFILE, &files);
  });
  EXPECT_NE(message.find("mine: cannot be read: EMFILE"), std::string::npos) << message;
}

TEST(ExportDirectory, IsWrittenByOneAtATime) {
  const TemporaryDirectory root;
  {
    ExportDirectory first(root / "export");
    put_file(first.file("config.json"), "first");
    EXPECT_NE(message_of<WriteError>([&] { const ExportDirectory second(root / "export"); }).find("being written"),
              std::string::npos);
    first.publish();
  }
  EXPECT_EQ(get_file(root / "export/config.json"), "first");
  publish(root / "export", "second");
  EXPECT_EQ(get_file(root / "export/config.json"), "second");
  EXPECT_EQ(root.names(), std::vector<std::string>{"export"});
}

}  // namespace
}  // namespace trireme::huggingface

// Fault, exports: a kill while an export is replaced -> the old or the new one remains; on NFS perhaps as
//   `.export.old`, restored by the next export
// Fault, exports: an export directory cannot be listed (EIO, EMFILE) -> the errno; it is not replaced

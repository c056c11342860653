// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/regular_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "support/temporary_directory.hpp"

namespace trireme::io {
namespace {

TEST(OpenRegularFile, OpensFilesAndLinksToThem) {
  const test::TemporaryDirectory dir;
  std::ofstream(dir / "file") << "12345";
  std::filesystem::create_symlink("file", dir / "link");
  for (const char* name : {"file", "link"}) {
    const RegularFile file = open_regular_file(dir / name);
    ASSERT_TRUE(file.opened()) << file.problem();
    EXPECT_EQ(file.bytes, 5);
    EXPECT_EQ(::fcntl(file.descriptor.get(), F_GETFL) & O_NONBLOCK, 0) << "reads wait as usual";
    EXPECT_NE(::fcntl(file.descriptor.get(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(OpenRegularFile, NamesWhatIsNoRegularFileAndNeverWaits) {
  const test::TemporaryDirectory dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string name = dir / "socket";
  ASSERT_LT(name.size(), sizeof address.sun_path);
  name.copy(address.sun_path, name.size());
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const auto kind = [](const std::string& path) {
    const RegularFile file = open_regular_file(path);
    EXPECT_FALSE(file.opened());
    return file.kind;
  };
  EXPECT_EQ(kind(dir / "fifo"), "a FIFO");
  EXPECT_EQ(kind(name), "a socket");
  EXPECT_EQ(kind("/dev/zero"), "a device");
  EXPECT_EQ(kind(dir / "."), "a directory");
  EXPECT_EQ(open_regular_file(dir / "fifo").problem(), "it is a FIFO, not a regular file");
  ::close(socket);
}

TEST(OpenRegularFile, GivesTheReasonOfTheSystem) {
  const test::TemporaryDirectory dir;
  EXPECT_EQ(open_regular_file(dir / "none").error, ENOENT);
  std::ofstream(dir / "file") << "";
  EXPECT_EQ(open_regular_file(dir / "file/below").problem(), "Not a directory");
}

}  // namespace
}  // namespace trireme::io

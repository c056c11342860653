// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

namespace trireme::test {

/// While one lives, this process has at most so much of a resource (RLIMIT_AS, RLIMIT_FSIZE, RLIMIT_NOFILE, ...).
class ResourceLimit {
 public:
  ResourceLimit(__rlimit_resource resource, rlim_t most) : resource_(resource) {
    EXPECT_EQ(::getrlimit(resource_, &before_), 0);
    const rlimit limit{.rlim_cur = most, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(resource_, &limit), 0);
  }
  ResourceLimit(const ResourceLimit&) = delete;
  ResourceLimit& operator=(const ResourceLimit&) = delete;
  ~ResourceLimit() { EXPECT_EQ(::setrlimit(resource_, &before_), 0); }

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

/// While one lives, no file grows beyond so many bytes: as on a full disk, some bytes fit, then no more.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)), limit_(RLIMIT_FSIZE, bytes) {}
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() { std::signal(SIGXFSZ, handler_); }

 private:
  void (*handler_)(int);
  ResourceLimit limit_;
};

}  // namespace trireme::test

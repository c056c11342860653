// SPDX-License-Identifier: Apache-2.0
#include "train/record/log_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/io/regular_file.hpp"
#include "trireme/base/log.hpp"

namespace trireme::train {

void refuse_fifo(const std::string& path) {
  const io::RegularFile found = io::open_regular_file(path);
  if (found.kind == "a FIFO") throw WriteError(fmt::format("{}: {}; move it away", path, found.problem()));
}

LogFile::LogFile(std::string path, Begin begin, std::string what, std::size_t most_kept_bytes)
    : path_(std::move(path)), what_(std::move(what)), most_kept_bytes_(most_kept_bytes) {
  refuse_fifo(path_);
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | (begin == Begin::empty ? O_TRUNC : 0);
  descriptor_ = ::open(path_.c_str(), flags, 0666);
  if (descriptor_ < 0)
    throw WriteError(fmt::format("{}: cannot be created: {}. Is run.output a directory that you may write to?", path_,
                                 std::strerror(errno)));
}

LogFile::~LogFile() {
  if (!flush())
    log::warning(fmt::format("{}: the last {} {} are lost: they could not be written before the end", path_,
                             kept_.size() + static_cast<std::size_t>(dropped_), what_));
  ::close(descriptor_);
}

void LogFile::append(std::string record) {
  if (kept_bytes_ + record.size() > most_kept_bytes_ && !flush()) {
    ++dropped_;
    return;
  }
  kept_bytes_ += record.size();
  kept_.push_back(std::move(record));
  if (!flush()) ++late_;
}

bool LogFile::flush() {
  while (!kept_.empty()) {
    const std::string& record = kept_.front();
    const ssize_t put = ::write(descriptor_, record.data() + written_, record.size() - written_);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      if (!std::exchange(behind_, true))
        log::warning(
            fmt::format("{}: cannot be written: {}. The training continues; {} are kept in memory and written when "
                        "there is space.",
                        path_, std::strerror(errno), what_));
      return false;
    }
    written_ += static_cast<std::size_t>(put);
    if (written_ < record.size()) continue;
    kept_bytes_ -= record.size();
    kept_.pop_front();
    written_ = 0;
  }
  if (std::exchange(behind_, false)) {
    log::info(fmt::format("{}: written again; {} late {} caught up{}", path_, late_, what_,
                          dropped_ > 0 ? fmt::format(", {} dropped for lack of memory", dropped_) : ""));
    late_ = dropped_ = 0;
  }
  return true;
}

}  // namespace trireme::train

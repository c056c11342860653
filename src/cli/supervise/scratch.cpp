// SPDX-License-Identifier: Apache-2.0
#include "cli/supervise/scratch.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/remove_tree.hpp"
#include "trireme/base/process.hpp"

namespace trireme::cli {
namespace {

namespace files = std::filesystem;

constexpr std::string_view prefix = ".supervise-";

std::string this_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string host_of(const files::path& scratch) {
  std::string host;
  std::getline(std::ifstream(scratch / "host"), host);
  return host;
}

/// id: "JOB-PID-START". A job of Slurm has one supervisor of a run at a time.
bool is_left_behind(const files::path& scratch, std::string_view id, const std::string& job) {
  const std::size_t start = id.rfind('-');
  const std::size_t pid = start == std::string_view::npos ? start : id.rfind('-', start - 1);
  if (pid == std::string_view::npos) return false;
  if (!job.empty() && id.substr(0, pid) == job) return true;
  const std::string host = this_host();
  const auto process = static_cast<pid_t>(std::atoi(std::string(id.substr(pid + 1)).c_str()));
  return process > 0 && !host.empty() && host_of(scratch) == host &&
         (process_has_ended(process) || process_start(process) != id.substr(start + 1));
}

}  // namespace

Scratch::Scratch(std::string output, const std::string& id, const std::string& job)
    : path_(output + "/" + std::string(prefix) + id) {
  std::error_code error;
  for (const files::path& entry : io::entries_of(output, error)) {
    const std::string name = entry.filename();
    if (name.starts_with(prefix) && is_left_behind(entry, std::string_view(name).substr(prefix.size()), job))
      io::remove_tree(entry.string(), error);
  }
}

Scratch::~Scratch() {
  std::error_code ignored;
  io::remove_tree(path_, ignored);
}

std::string Scratch::folder(const std::string& name) const {
  const std::string path = name.empty() ? path_ : path_ + "/" + name;
  const bool begins = !files::exists(path_);
  files::create_directories(path);
  if (begins) io::write_text(path_ + "/host", this_host() + "\n");
  return path;
}

}  // namespace trireme::cli

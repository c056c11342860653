// SPDX-License-Identifier: Apache-2.0
#include "train/record/report_files.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/log.hpp"

namespace trireme::train {

namespace fs = std::filesystem;

bool ReportFiles::put(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".partial";
  std::error_code error;
  try {
    io::write_text(temporary, text);
    io::rename_over(temporary, path);
  } catch (const WriteError& failure) {
    io::remove_file(temporary, error);
    if (!std::exchange(warned_[path], true))
      log::warning(
          fmt::format("{}: not written yet ({}). The training continues; the file is kept in memory and written when "
                      "there is space.",
                      path, failure.what()));
    return false;
  }
  if (std::exchange(warned_[path], false)) log::info(fmt::format("{}: written now", path));
  return true;
}

void ReportFiles::write(const std::string& path, std::string text) {
  kept_.erase(path);
  if (put(path, text)) return;
  std::size_t bytes = text.size();
  for (const auto& [other, kept] : kept_) bytes += kept.size();
  if (bytes <= most_kept_bytes_)
    kept_.emplace(path, std::move(text));
  else
    log::warning(fmt::format("{}: dropped: {} bytes are too many to keep in memory", path, text.size()));
}

bool ReportFiles::due() const {
  constexpr std::chrono::seconds pause{1};
  return !kept_.empty() && std::chrono::steady_clock::now() - tried_ >= pause;
}

void ReportFiles::retry() {
  if (!due()) return;
  tried_ = std::chrono::steady_clock::now();
  std::erase_if(kept_, [&](const auto& file) { return put(file.first, file.second); });
}

void ReportFiles::finish() {
  for (const auto& [path, text] : kept_)
    if (!put(path, text)) log::warning(fmt::format("{}: lost: it could not be written before the end", path));
  kept_.clear();
}

}  // namespace trireme::train

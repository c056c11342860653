// SPDX-License-Identifier: Apache-2.0
#include "train/record/end_report.hpp"

#include <fmt/format.h>

#include <array>
#include <exception>

#include "trireme/base/io/file.hpp"
#include "trireme/base/log.hpp"
#include "trireme/report/page.hpp"

namespace trireme::train {

std::string write_end_report(const config::RunConfig& config) {
  const std::string path = config.run.output + "/report.html";
  try {
    const std::array runs{report::read_run(config.run.output)};
    io::replace_text(path, report::page(runs));
    return fmt::format("wrote {}\n", path);
  } catch (const std::exception& error) {
    log::warning(
        fmt::format("{} was not written: {}; later: trireme report {}", path, error.what(), config.run.output));
    return "";
  }
}

}  // namespace trireme::train

// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/best.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "trireme/base/fault.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_bytes_of_mark = 4096;

std::string mark_of(const std::string& directory) { return directory + "/best.json"; }
std::string link_of(const std::string& directory) { return directory + "/best"; }

/// Discarded if it is longer than a mark is, as after a power cut.
nlohmann::json read_mark(const std::string& directory) {
  if (io::status_of(mark_of(directory)).bytes > most_bytes_of_mark) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(io::read_text(mark_of(directory), most_bytes_of_mark), nullptr, false);
}

/// By another name first, so that there is a link at any moment.
void put_link(const std::string& directory, const std::string& name) {
  const std::string next = directory + "/.best.next";
  std::error_code error;
  io::remove_file(next, error);
  io::make_symlink(name, next, error);
  if (!error) io::rename_file(next, link_of(directory), error);
  if (error)
    log::warning(fmt::format("{}: cannot be linked to {}: {}; the best checkpoint is in {}", link_of(directory), name,
                             error.message(), mark_of(directory)));
}

}  // namespace

std::optional<Best> find_best(const std::string& directory, std::int64_t until) {
  if (io::status_of(mark_of(directory)).kind != io::PathKind::file) return std::nullopt;
  const nlohmann::json json = read_mark(directory);
  if (!json.is_object() || !json.contains("step") || !json.contains("eval_loss") || !json["step"].is_number_integer() ||
      !json["eval_loss"].is_number()) {
    log::warning(fmt::format("{}: is damaged; the best checkpoint is chosen again from the next evaluation on",
                             mark_of(directory)));
    return std::nullopt;
  }
  Best best{.step = json["step"], .loss = json["eval_loss"]};
  if (json.contains("eval_tokens") && json["eval_tokens"].is_number_integer()) best.targets = json["eval_tokens"];
  if (json.contains("validation") && json["validation"].is_string()) best.evaluated = json["validation"];
  if (best.step > until || io::status_of(directory + "/" + step_name(best.step)).kind != io::PathKind::directory)
    return std::nullopt;
  return best;
}

void mark_best(const std::string& directory, const Best& best) {
  const nlohmann::ordered_json json{{"step", best.step},
                                    {"eval_loss", best.loss},
                                    {"eval_tokens", best.targets},
                                    {"validation", best.evaluated},
                                    {"checkpoint", step_name(best.step)}};
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(mark_of(directory), error))) io::remove_file(mark_of(directory), error);
  io::replace_text(mark_of(directory), json.dump() + "\n");
  (void)fault::point("ckpt.best");
  put_link(directory, step_name(best.step));
}

void forget_best(const std::string& directory) {
  std::error_code error;
  io::remove_file(mark_of(directory), error);
  if (fs::is_symlink(link_of(directory), error)) io::remove_file(link_of(directory), error);
}

}  // namespace trireme::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "train/setup/gemm.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/log.hpp"
#include "trireme/kernels/gemm_library.hpp"
#include "trireme/mpi/broadcast.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

/// Model, family and instruction sets of this CPU, as the kernel names them.
std::string cpu_type() {
  std::ifstream info("/proc/cpuinfo");
  std::string type, line;
  while (std::getline(info, line) && !line.empty())
    for (const char* key : {"model name", "cpu family", "model\t", "stepping", "flags"})
      if (line.starts_with(key)) type += line + '\n';
  return type;
}

std::string libtorch_version() {
  for (const LibraryVersion& library : build_info().libraries)
    if (library.name == "libtorch") return std::string(library.version);
  return "unknown";
}

std::optional<kernels::GemmChoice> kept(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  try {
    return kernels::parse_gemm_choice(line);
  } catch (const Error&) {
    return std::nullopt;  // of another version, or cut off: measured again
  }
}

/// Written atomically, so that concurrent jobs read whole files. A choice that cannot be stored is measured again.
void keep(const std::string& path, const kernels::GemmChoice& choice) {
  std::error_code ignored;
  fs::create_directories(fs::path(path).parent_path(), ignored);
  try {
    io::replace_text(path, kernels::to_text(choice) + "\n");
  } catch (const WriteError& error) {
    log::debug(error.what());
  }
}

kernels::GemmChoice decide() {
  const std::string path = gemm_choice_path();
  if (path.empty()) return kernels::measure_gemm();
  if (const auto choice = kept(path)) return *choice;
  const kernels::GemmChoice choice = kernels::measure_gemm();
  keep(path, choice);
  return choice;
}

}  // namespace

std::string cpu_model() {
  const std::string type = cpu_type();
  const std::size_t colon =
      type.find("model name") == std::string::npos ? std::string::npos : type.find(": ", type.find("model name"));
  return colon == std::string::npos ? "unknown" : type.substr(colon + 2, type.find('\n', colon) - colon - 2);
}

std::string cpu_name() { return fmt::format("{} ({:016x})", cpu_model(), fnv1a(cpu_type())); }

std::string gemm_choice_path() {
  const char* cache = std::getenv("TRIREME_CACHE");
  const char* home = std::getenv("HOME");
  if (cache == nullptr && home == nullptr) return "";
  const fs::path base = cache != nullptr ? fs::path(cache) : fs::path(home) / ".cache" / "trireme";
  const std::string measured = fmt::format("{}{}{}", cpu_type(), libtorch_version(), kernels::measured_with());
  return (base / "gemm" / fmt::format("{:016x}.txt", fnv1a(measured))).string();
}

kernels::GemmChoice agree_on_gemm(const mpi::Communicator& world) {
  const std::string text = mpi::broadcast_text(world, world.rank() == 0 ? kernels::to_text(decide()) : "");
  kernels::set_gemm_choice(kernels::parse_gemm_choice(text));
  return kernels::gemm_choice();
}

}  // namespace trireme::train

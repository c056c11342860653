// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/node.hpp"

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "cli/start/launcher.hpp"
#include "cli/supervise/nodes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/atomic_file.hpp"
#include "trireme/base/io/descriptor.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/process.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/unix_time.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::cli {
namespace {

namespace files = std::filesystem;
using Problems = std::vector<std::string>;

std::string text_of(const files::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The number behind `key` at the beginning of a line.
std::int64_t number_in(const std::string& text, const std::string& key) {
  const std::size_t at = ("\n" + text).find("\n" + key);
  return at == std::string::npos ? 0 : std::strtoll(text.c_str() + at + key.size(), nullptr, 10);
}

/// Elements are small integers: fp32 represents all sums of a product exactly, in any order, and bf16 those of ternary
/// factors.
void check_product(const at::Device& device, at::ScalarType type, const std::string& where, Problems& problems) {
  constexpr std::int64_t n = 256;
  const std::int64_t values = type == at::kBFloat16 ? 3 : 15;
  const at::Tensor left = at::empty({n, n}, at::kLong), right = at::empty({n, n}, at::kLong);
  for (std::int64_t i = 0; i < n * n; ++i) {
    left.mutable_data_ptr<std::int64_t>()[i] = i * 7 % values - values / 2;
    right.mutable_data_ptr<std::int64_t>()[i] = i * 11 % (values + 2) % values - values / 2;
  }
  const at::Tensor exact = at::mm(left, right);
  const at::Tensor found = at::mm(left.to(device, type), right.to(device, type)).to(at::kCPU, at::kLong);
  if (!found.equal(exact))
    problems.push_back(fmt::format("{} computes a wrong {} product", where, type == at::kFloat ? "fp32" : "bf16"));
}

/// Writes and reads a pattern.
void check_memory(const at::Device& device, const std::string& where, Problems& problems) {
  constexpr std::int64_t elements = std::int64_t{8} << 20;  // 64 MiB
  const at::Tensor pattern = at::arange(elements, at::TensorOptions(at::kLong).device(device));
  const at::Tensor copy = pattern.clone();
  if (!copy.equal(pattern) || pattern.sum().item<std::int64_t>() != elements * (elements - 1) / 2)
    problems.push_back(fmt::format("{} memory does not keep its contents", where));
}

std::int64_t check_gpus(Problems& problems) {
  if (!device::built_for_gpus()) return 0;
  const device::GpuProbe probe = device::probe_gpus();
  for (const device::Gpu& gpu : probe.gpus) {
    const std::string where = fmt::format("GPU {} ({})", gpu.index, gpu.bus);
    try {
      const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(gpu.index));
      check_memory(device, where, problems);
      check_product(device, at::kFloat, where, problems);
      check_product(device, at::kBFloat16, where, problems);
    } catch (const std::exception& error) {
      const std::string what = error.what();
      problems.push_back(fmt::format("{}: {}", where, what.substr(0, what.find('\n'))));
    }
  }
  return static_cast<std::int64_t>(probe.gpus.size());
}

void check_host(Problems& problems) {
  try {
    check_memory(at::kCPU, "host", problems);
    check_product(at::kCPU, at::kFloat, "the CPU", problems);
    check_product(at::kCPU, at::kBFloat16, "the CPU", problems);
  } catch (const std::exception& error) {
    problems.push_back(fmt::format("host: {}", error.what()));
  }
  std::error_code error;
  for (const files::path& controller : io::entries_of("/sys/devices/system/edac/mc", error))
    if (const std::int64_t count = std::atoll(text_of(controller / "ue_count").c_str()); count > 0)
      problems.push_back(fmt::format("{} uncorrectable memory errors in {}", count, controller.filename().string()));
}

/// Active InfiniBand ports, and network interfaces that are up besides the loopback.
std::int64_t active_ports() {
  std::int64_t ports = 0;
  std::error_code error;
  for (const files::path& device : io::entries_of("/sys/class/infiniband", error))
    for (const files::path& port : io::entries_of(device / "ports", error))
      if (text_of(port / "state").find("ACTIVE") != std::string::npos) ++ports;
  for (const files::path& device : io::entries_of("/sys/class/net", error))
    if (device.filename() != "lo" && text_of(device / "operstate").starts_with("up")) ++ports;
  return ports;
}

/// Writes a file of TMPDIR to the disk and reads it.
void check_disk(Problems& problems) {
  const std::string set = environment("TMPDIR");
  const std::string folder = set.empty() ? "/tmp" : set;
  std::string path = folder + "/trireme-node-check-XXXXXX";
  const io::Descriptor file(::mkostemp(path.data(), O_CLOEXEC));
  const auto fail = [&](std::string_view what) {
    problems.push_back(fmt::format("{}: {}: {}", folder, what, std::strerror(errno)));
  };
  if (file.get() < 0) return fail("no file can be created");
  ::unlink(path.c_str());
  std::string bytes(1 << 20, '\0'), read(bytes.size(), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761U >> 13U);
  const auto size = static_cast<ssize_t>(bytes.size());
  if (::pwrite(file.get(), bytes.data(), bytes.size(), 0) != size || ::fsync(file.get()) != 0)
    return fail("1 MiB cannot be written");
  if (::pread(file.get(), read.data(), read.size(), 0) != size) return fail("1 MiB cannot be read");
  if (read != bytes) problems.push_back(folder + ": other bytes are read than were written");
}

/// Processes of this user whose environment has TRIREME_LIFE=life, except this one.
std::vector<pid_t> processes_of(const std::string& life) {
  const std::string entry = "TRIREME_LIFE=" + life;
  std::vector<pid_t> found;
  std::error_code error;
  for (const files::path& process : io::entries_of("/proc", error)) {
    const std::string name = process.filename();
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto pid = static_cast<pid_t>(std::atol(name.c_str()));
    struct stat status {};
    if (pid == ::getpid() || ::stat(process.c_str(), &status) != 0 || status.st_uid != ::getuid()) continue;
    const std::string variables = '\0' + text_of(process / "environ");
    if (variables.find('\0' + entry + '\0') != std::string::npos) found.push_back(pid);
  }
  return found;
}

/// Kills ranks that outlived their launcher and waits for their end.
void end_ranks(const std::string& life, Problems& problems) {
  constexpr int tries = 100;
  constexpr std::chrono::milliseconds pause(50);
  for (int i = 0; i < tries; ++i) {
    std::vector<pid_t> left = processes_of(life);
    std::erase_if(left, process_has_ended);
    if (left.empty()) return;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(pause);
  }
  problems.emplace_back("ranks of the last start cannot be killed");
}

std::string node_name(const NodeCheckArguments& arguments) {
  if (!arguments.name.empty()) return arguments.name;
  const std::string slurm = environment("SLURMD_NODENAME");
  return slurm.empty() ? mpi::hostname() : slurm;
}

}  // namespace

int check_node(const NodeCheckArguments& arguments) {
  NodeReport report{.node = node_name(arguments)};
  if (!arguments.end_ranks.empty()) end_ranks(arguments.end_ranks, report.problems);
  check_host(report.problems);
  check_disk(report.problems);
  report.gpus = check_gpus(report.problems);
  report.network_ports = active_ports();
  report.memory_bytes = 1024 * number_in(text_of("/proc/meminfo"), "MemTotal:");
  report.oom_kills = number_in(text_of("/proc/vmstat"), "oom_kill ");
  report.unix_seconds = unix_seconds();
  if (!arguments.report.empty()) {
    io::AtomicFile file(fmt::format("{}/{}.json", arguments.report, report.node));
    file.write(to_json(report));
    file.close();
    file.publish();
  }
  fmt::print("node {}: {}\n", report.node,
             report.problems.empty()
                 ? fmt::format("healthy; {} GPUs, {} active network ports", report.gpus, report.network_ports)
                 : join(report.problems, "; "));
  return static_cast<int>(report.problems.empty() ? ExitCode::done : ExitCode::environment);
}

}  // namespace trireme::cli

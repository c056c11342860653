// SPDX-License-Identifier: Apache-2.0
//
// `many_commands FILE` runs command lines of `trireme` one after the other in one process, under mpirun or alone, with
// the effect of separate starts: a start takes longer than the computations of small models. FILE has a command per
// line, with words separated by tabs. MPI and Kokkos can be initialized once per process and are initialized around all
// commands: the linker (--wrap) replaces their functions by those below. It ends with the first exit code other than 0;
// "$ trireme ..." on standard error precedes the output of each command.
#include <mpi.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/supervise/watchdog.hpp"

namespace Kokkos {
class InitializationSettings;
}

namespace {
bool mpi_is_up = false, kokkos_is_up = false, kokkos_in_use = false;
}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's names
extern "C" {
int __real_main(int argc, char** argv);  // of trireme
int __wrap__ZN7trireme3cli11end_processEi(int code) { return code; }
int __real_MPI_Init_thread(int* argc, char*** argv, int required, int* provided);
int __wrap_MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  if (mpi_is_up) return MPI_Query_thread(provided);
  mpi_is_up = true;
  return __real_MPI_Init_thread(argc, argv, required, provided);
}
int __real_MPI_Finalize();
int __wrap_MPI_Finalize() { return MPI_SUCCESS; }

void __real__ZN6Kokkos10initializeERKNS_22InitializationSettingsE(const Kokkos::InitializationSettings& settings);
void __wrap__ZN6Kokkos10initializeERKNS_22InitializationSettingsE(const Kokkos::InitializationSettings& settings) {
  if (!kokkos_is_up) __real__ZN6Kokkos10initializeERKNS_22InitializationSettingsE(settings);
  kokkos_is_up = kokkos_in_use = true;
}
void __real__ZN6Kokkos8finalizeEv();
void __wrap__ZN6Kokkos8finalizeEv() { kokkos_in_use = false; }
bool __wrap__ZN6Kokkos14is_initializedEv() { return kokkos_in_use; }

// Watchdog::mark. A command's last mark begins a deadline for MPI_Finalize that only the end of the process ends.
void __real__ZN7trireme9supervise8Watchdog4markESt17basic_string_viewIcSt11char_traitsIcEEld(
    trireme::supervise::Watchdog* watchdog, std::string_view section, long step, double extra_seconds);
void __wrap__ZN7trireme9supervise8Watchdog4markESt17basic_string_viewIcSt11char_traitsIcEEld(
    trireme::supervise::Watchdog* watchdog, std::string_view section, long step, double extra_seconds) {
  if (section == "MPI_Finalize")
    watchdog->rest();
  else
    __real__ZN7trireme9supervise8Watchdog4markESt17basic_string_viewIcSt11char_traitsIcEEld(watchdog, section, step,
                                                                                            extra_seconds);
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words{"trireme"};
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = line.find('\t', begin);
    words.push_back(line.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return words;
}

int run_line(const std::string& line) {
  std::vector<std::string> words = words_of(line);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fprintf(stderr, "$ trireme %s\n", line.c_str());
  return __real_main(static_cast<int>(words.size()), arguments.data());
}

}  // namespace

extern "C" int __wrap_main(int argc, char** argv) {  // NOLINT(bugprone-reserved-identifier)
  std::ifstream commands(argc == 2 ? argv[1] : "");
  if (!commands) {
    std::fprintf(stderr, "usage: many_commands FILE\n");
    return 2;
  }
  int code = 0;
  for (std::string line; code == 0 && std::getline(commands, line);) code = run_line(line);
  if (code != 0) std::fprintf(stderr, "many_commands: exit code %d\n", code);
  if (kokkos_is_up) __real__ZN6Kokkos8finalizeEv();
  if (mpi_is_up) __real_MPI_Finalize();
  return code;
}

// SPDX-License-Identifier: Apache-2.0
#include "cli/this_build.hpp"

#include <fmt/format.h>

#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cli {

std::string version_text() {
  const BuildInfo& info = build_info();
  std::string text = fmt::format("trireme {} ({})\n{} {} build, {}\n", info.version, info.git_hash, info.compiler,
                                 info.build_type, info.arch);
  for (const LibraryVersion& library : info.libraries) text += fmt::format("{} {}\n", library.name, library.version);
  return text;
}

void check_instructions() {
  if (build_info().arch == "x86-64-v3" && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")))
    throw EnvironmentError(
        "This build needs a CPU with AVX2 and FMA (x86-64-v3). Configure with -DTRIREME_ARCH= of an older one, such as "
        "x86-64-v2.");
}

}  // namespace trireme::cli

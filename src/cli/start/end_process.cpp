// SPDX-License-Identifier: Apache-2.0
#include "cli/start/end_process.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

namespace trireme::cli {

int end_process(int code) {
  if (::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr) return code;
  std::cout.flush();
  (void)std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace trireme::cli

// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/handled_files.hpp"

#include <atomic>

namespace trireme::io {
namespace {

std::atomic<std::int64_t> handled = 0;

}  // namespace

void count_handled_file() { ++handled; }

std::int64_t handled_files() { return handled; }

}  // namespace trireme::io

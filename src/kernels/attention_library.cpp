// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/attention_library.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"

namespace trireme::kernels {
namespace {

AttentionLibrary& current() {
  static AttentionLibrary library = AttentionLibrary::flash;
  return library;
}

}  // namespace

std::string_view to_text(AttentionLibrary library) {
  for (const auto& [value, name] : attention_libraries)
    if (value == library) return name;
  throw BugError("to_text: unknown attention library");
}

AttentionLibrary parse_attention_library(std::string_view text) {
  for (const auto& [library, name] : attention_libraries)
    if (name == text) return library;
  throw ConfigError(fmt::format("unknown attention library \"{}\": allowed are dense, flash and cudnn", text));
}

void set_attention_library(AttentionLibrary library) { current() = library; }
AttentionLibrary attention_library() { return current(); }

AttentionLibrary measure_attention(const AttentionShape& shape) { return cuda::measure_attention(shape); }

}  // namespace trireme::kernels

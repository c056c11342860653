// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/attention_library.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "trireme/base/error.hpp"

namespace trireme::kernels {
namespace {

std::optional<AttentionLibrary>& current() {
  static std::optional<AttentionLibrary> library;
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
AttentionLibrary attention_library() { return current().value_or(AttentionLibrary::flash); }
bool attention_was_chosen() { return current().has_value(); }

void set_deterministic() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // cuBLAS reads it when it starts
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);  // every kernel here writes all of its output
}

AttentionLibrary measure_attention(const AttentionShape& shape) { return cuda::measure_attention(shape); }

}  // namespace trireme::kernels

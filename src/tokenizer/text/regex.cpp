// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/text/regex.hpp"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <stdexcept>

#include "tokenizer/text/pattern.hpp"
#include "trireme/base/error.hpp"

namespace trireme::tokenizer::hf {
namespace {

static_assert(PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40, "PCRE2 10.40 or later: \\p{Alphabetic} and scripts by sc:");

template <auto free>
struct Free {
  void operator()(auto* handle) const { free(handle); }
};
template <class T, auto free>
using Owned = std::unique_ptr<T, Free<free>>;

/// Matching workspace of one thread.
struct Workspace {
  Owned<pcre2_match_data, pcre2_match_data_free> match{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_match_context, pcre2_match_context_free> context{pcre2_match_context_create(nullptr)};
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack{pcre2_jit_stack_create(32 << 10, 64 << 20, nullptr)};
  Workspace() { pcre2_jit_stack_assign(context.get(), nullptr, stack.get()); }
};

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

Regex::Regex(const std::string& pattern, const std::string& key) : key_(key) {
  const auto refuse = [&](const std::string& why) {
    return DataError(fmt::format("{}: the regular expression {} cannot be matched as the tokenizers package does: {}",
                                 key, pattern, why));
  };
  std::string translated;
  try {
    translated = pcre2_pattern(pattern);
  } catch (const std::invalid_argument& reason) {
    throw refuse(reason.what());
  }
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &at, context.get());
  if (code == nullptr) throw refuse(message_of(error));
  code_ = std::shared_ptr<const void>(code, [code](const void*) { pcre2_code_free(code); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where the machine allows none, PCRE2 interprets
}

std::optional<Range> Regex::find(std::string_view text, std::size_t from) const {
  thread_local const Workspace workspace;
  const int found = pcre2_match(static_cast<const pcre2_code*>(code_.get()), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                text.size(), from, PCRE2_NO_UTF_CHECK, workspace.match.get(), workspace.context.get());
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0)
    throw DataError(fmt::format("{}: the regular expression fails at byte {}: {}", key_, from, message_of(found)));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(workspace.match.get());
  return Range{static_cast<std::uint32_t>(bounds[0]), static_cast<std::uint32_t>(bounds[1])};
}

}  // namespace trireme::tokenizer::hf

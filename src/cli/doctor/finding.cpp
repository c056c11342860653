// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/finding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace trireme::cli {
namespace {

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok: return "ok";
    case Verdict::warning: return "warning";
    case Verdict::error: return "ERROR";
  }
  return "?";
}

std::ptrdiff_t count(const Findings& findings, Verdict verdict) {
  return std::ranges::count(findings, verdict, &Finding::verdict);
}

}  // namespace

Verdict worst(const Findings& findings) {
  const auto found = std::ranges::max_element(findings, {}, &Finding::verdict);
  return found == findings.end() ? Verdict::ok : found->verdict;
}

std::string to_text(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<8} {:<16} {}\n", word(finding.verdict), finding.subject, finding.found);
    if (!finding.remedy.empty()) text += fmt::format("{:<25} -> {}\n", "", finding.remedy);
  }
  const auto warnings = count(findings, Verdict::warning);
  const auto errors = count(findings, Verdict::error);
  return text + fmt::format("\n{} ok, {} warning{}, {} error{}\n", count(findings, Verdict::ok), warnings,
                            warnings == 1 ? "" : "s", errors, errors == 1 ? "" : "s");
}

void append(Findings& findings, Findings more) { std::ranges::move(more, std::back_inserter(findings)); }

}  // namespace trireme::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

/// Findings of `trireme doctor`: values, printed elsewhere.
namespace trireme::cli {

enum class Verdict { ok, warning, error };

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string subject;  ///< "MPI threads"
  std::string found;
  std::string remedy{};  ///< empty when no action is needed
};

using Findings = std::vector<Finding>;

[[nodiscard]] Verdict worst(const Findings& findings);

/// A line a finding, its remedy on the next, and a count at the end.
[[nodiscard]] std::string to_text(const Findings& findings);

/// Appends findings of another function.
void append(Findings& findings, Findings more);

}  // namespace trireme::cli

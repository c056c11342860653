// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

/// What `trireme doctor` finds: values, printed apart.
namespace trireme::cli {

enum class Verdict { ok, warning, error };

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string subject;  ///< "MPI threads"
  std::string found;
  std::string remedy{};  ///< what to do about it; empty when nothing is to be done
};

using Findings = std::vector<Finding>;

[[nodiscard]] Verdict worst(const Findings& findings);

/// A line a finding, its remedy on the next, and a count at the end.
[[nodiscard]] std::string to_text(const Findings& findings);

/// What several functions found, in one list.
void append(Findings& findings, Findings more);

}  // namespace trireme::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/config/run_config.hpp"

/// `train --try N`: a few steps of a run that leave nothing behind.
namespace trireme::cli {

/// A separate folder for the output of the steps, removed in the destructor. On the rank that writes.
class TrialDirectory {
 public:
  /// Throws WriteError.
  TrialDirectory();
  TrialDirectory(const TrialDirectory&) = delete;
  TrialDirectory& operator=(const TrialDirectory&) = delete;
  ~TrialDirectory();
  /// For run.output.
  [[nodiscard]] std::string output() const { return path_ + "/run"; }

 private:
  std::string path_;
};

/// The first `steps` steps of `config`, written to `output`: at most one step of warm-up; no evaluation, checkpoint,
/// export, trace, TensorBoard and report.
[[nodiscard]] config::RunConfig trial_of(config::RunConfig config, std::int64_t steps, const std::string& output);

/// Measured speed and memory of the trial in `output`, for the run `config` on `ranks` ranks. Lines for users.
[[nodiscard]] std::string trial_verdict(const config::RunConfig& config, int ranks, const std::string& output);

}  // namespace trireme::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme::cli {

/// Directory of a supervisor for host files and node reports, RUN.OUTPUT/.supervise-ID; removed with this object.
class Scratch {
 public:
  /// id: "JOB-PID-START", unique among supervisors. Removes the directories of supervisors that were killed: those of
  /// this host whose process has ended, and those of earlier lives of the same Slurm job. job: "" outside of Slurm.
  Scratch(std::string output, const std::string& id, const std::string& job);
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();

  /// Creates the folder `name` in it; its path. "": the directory itself.
  [[nodiscard]] std::string folder(const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace trireme::cli

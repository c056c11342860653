// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace trireme::optim {

/// The threads that an update or a norm runs on. Results do not depend on it. By default Kokkos' host space, whose
/// threads are the compute thread's; a separate team lets another thread work concurrently with it.
class Team {
 public:
  Team();
  /// `threads` threads, the calling one among them; they belong to the thread that uses the team first. One thread
  /// where Kokkos has no parallel host space.
  explicit Team(int threads);
  Team(Team&&) noexcept;
  Team& operator=(Team&&) noexcept;
  ~Team();

  struct Space;
  /// For optim's own use: Kokkos stays out of this header.
  [[nodiscard]] const Space& space() const { return *space_; }

 private:
  std::unique_ptr<Space> space_;
};

}  // namespace trireme::optim

// SPDX-License-Identifier: Apache-2.0
//
// The main function of the machine layers' tests that need no MPI: Kokkos is up while they run.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>

#include "base/library_settings.hpp"
#include "support/skips_here.hpp"

int main(int argc, char** argv) {
  trireme::set_for_libraries();
  testing::InitGoogleTest(&argc, argv);
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
  auto* const skips = new trireme::test::SkipsHere;
  testing::UnitTest::GetInstance()->listeners().Append(skips);  // which owns it
  const int failed = RUN_ALL_TESTS();
  return failed == 0 && skips->any() ? trireme::test::SkipsHere::exit_code : failed;
}

// SPDX-License-Identifier: Apache-2.0
//
// Message and exit code of an unexpected exception.
#include "trireme/mpi/abort.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "trireme/base/error.hpp"

namespace trireme::mpi {
namespace {

template <class Exception>
[[noreturn]] void ends_with(const Exception& exception) {
  try {
    throw exception;
  } catch (...) {
    abort_job_for_current_exception();
  }
}

testing::ExitedWithCode with(ExitCode code) { return testing::ExitedWithCode(static_cast<int>(code)); }

TEST(AbortDeathTest, SeparatesTheEnvironmentsFailuresFromBugs) {
  EXPECT_EXIT(ends_with(std::bad_alloc()), with(ExitCode::environment), "Out of host memory: the system gave no more");
  for (const std::string said : {"could not execute a primitive", "could not create a memory object"})
    EXPECT_EXIT(ends_with(std::runtime_error(said)), with(ExitCode::environment), "Out of host memory: oneDNN " + said);
  EXPECT_EXIT(ends_with(std::runtime_error("it could not")), with(ExitCode::bug), "it could not .unexpected: report");
  EXPECT_EXIT(ends_with(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))),
              with(ExitCode::environment), "starts no more threads");
  EXPECT_EXIT(ends_with(std::system_error(std::make_error_code(std::errc::no_space_on_device))), with(ExitCode::write),
              "No space left");
}

}  // namespace
}  // namespace trireme::mpi

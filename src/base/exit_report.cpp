// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/exit_report.hpp"

#include <fmt/format.h>

#include <new>
#include <system_error>

namespace trireme {
namespace {

std::string out_of_memory(std::string_view found) {
  return fmt::format(
      "Out of host memory: {}. Use a smaller model, batch or sequence, more ranks or nodes, or raise the limit "
      "(`ulimit -v`, the job's --mem); `trireme plan` shows what a rank needs.",
      found);
}

std::string unexpected(const std::exception& error) {
  return fmt::format("{} (unexpected: report this as a bug in Trireme)", error.what());
}

/// oneDNN, which multiplies for libtorch on CPUs, has one message for all its failures; with shapes from libtorch the
/// cause is memory.
bool is_of_onednn(const std::exception& error) {
  const std::string_view text = error.what();
  return text.starts_with("could not execute a primitive") || text.starts_with("could not create a ");
}

ExitReport report(const std::system_error& error) {
  for (const std::errc full : {std::errc::no_space_on_device, std::errc::file_too_large, std::errc::io_error})
    if (error.code() == full) return {.code = ExitCode::write, .text = error.what()};
  if (error.code() == std::errc::resource_unavailable_try_again)
    return {.code = ExitCode::environment,
            .text = fmt::format("The system starts no more threads or processes ({}). Raise the limit (`ulimit -u`, "
                                "the tasks of the job's cgroup), or start fewer ranks on a node.",
                                error.what())};
  for (const std::errc none :
       {std::errc::not_enough_memory, std::errc::too_many_files_open, std::errc::too_many_files_open_in_system})
    if (error.code() == none)
      return {.code = ExitCode::environment,
              .text = fmt::format(
                  "The system refused what the program needs: {}. Raise the limits of the job (`ulimit -a`).",
                  error.what())};
  return {.code = ExitCode::bug, .text = unexpected(error)};
}

}  // namespace

ExitReport exit_report(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {.code = error.code(), .text = error.what()};
  } catch (const std::bad_alloc&) {
    return {.code = ExitCode::environment, .text = out_of_memory("the system gave no more")};
  } catch (const std::system_error& error) {
    return report(error);
  } catch (const std::exception& error) {
    if (is_of_onednn(error))
      return {.code = ExitCode::environment, .text = out_of_memory(fmt::format("oneDNN {}", error.what()))};
    return {.code = ExitCode::bug, .text = unexpected(error)};
  } catch (...) {
    return {.code = ExitCode::bug, .text = "An unknown exception: report this as a bug in Trireme."};
  }
}

std::string exit_code_table() {
  std::string text;
  for (const ExitMeaning& one : exit_meanings)
    text += fmt::format("  {:<7}{}\n", static_cast<int>(one.code), one.meaning);
  return text + "  128+n  ended by signal n\n";
}

}  // namespace trireme

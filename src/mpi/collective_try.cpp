// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/collective_try.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "mpi/await.hpp"
#include "trireme/base/exit_report.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::mpi {
namespace {

constexpr std::size_t most_failures = 4;
constexpr std::size_t longest_message = std::size_t{1} << 20;
constexpr std::size_t most_per_broadcast = std::size_t{1} << 30;

/// At most `longest_message` bytes, cut between characters of UTF-8.
std::string shortened(std::string text) {
  if (text.size() <= longest_message) return text;
  const std::size_t bytes = text.size();
  std::size_t end = longest_message;
  for (int i = 0; i < 3 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U; ++i) --end;
  text.resize(end);
  return text + fmt::format(" ... ({} bytes in all)", bytes);
}

/// Failure of this rank; `relayed` if another rank of its group reports the cause.
struct OwnFailure {
  ExitCode code;
  std::string message;
  bool relayed = false;
};

std::optional<OwnFailure> failure_of(const Communicator& communicator, const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const HangError&) {
    throw;
  } catch (const CollectiveError& error) {
    const int rank = communicator.job_rank(communicator.rank());
    const auto own = std::ranges::find(error.failures(), rank, &Failure::rank);
    if (own == error.failures().end())
      return OwnFailure{.code = error.code(), .message = shortened(error.what()), .relayed = true};
    return OwnFailure{.code = own->code, .message = own->message};
  } catch (...) {
    ExitReport report = exit_report(std::current_exception());
    return OwnFailure{.code = report.code, .message = shortened(std::move(report.text))};
  }
}

int minimum(const Communicator& communicator, int mine, std::string_view what) {
  int least = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  await(communicator, MPI_Iallreduce(&mine, &least, 1, MPI_INT, MPI_MIN, communicator.handle(), &request), request,
        what);
  return least;
}

std::string encode(ExitCode code, std::string_view message) {
  return fmt::format("{} {}", static_cast<int>(code), message);
}

/// rank: in `communicator`.
Failure decode(const Communicator& communicator, const std::string& text, int rank) {
  return {.code = static_cast<ExitCode>(std::atoi(text.c_str())),
          .message = text.substr(text.find(' ') + 1),
          .rank = communicator.job_rank(rank)};
}

/// A failure and its rank in the communicator.
struct Shown {
  Failure failure;
  int rank = 0;
};

std::string text_of(const Communicator& communicator, const std::vector<Shown>& shown, std::uint64_t more) {
  if (shown.size() == 1 && more == 0 && shown.front().failure.rank == 0) return shown.front().failure.message;
  std::string text;
  for (const Shown& one : shown)
    text += fmt::format("{}[{}] {}", text.empty() ? "" : "; ", communicator.name_of(one.rank), one.failure.message);
  return more == 0 ? text : text + fmt::format("; and {} more", more);
}

}  // namespace

CollectiveError::CollectiveError(std::vector<Failure> failures, const std::string& text, bool prints)
    : Error(failures.front().code, text), failures_(std::move(failures)), prints_(prints) {}

CollectiveError::CollectiveError(const Communicator& communicator, const Error& error)
    : CollectiveError({{.code = error.code(), .message = error.what(), .rank = communicator.job_rank(0)}}, error.what(),
                      communicator.rank() == 0) {}

void collective_try(const Communicator& communicator, std::string_view what, const std::function<void()>& work) {
  std::optional<OwnFailure> mine = failure_of(communicator, work);
  const int size = communicator.size(), none = 3 * size;
  std::vector<Shown> shown;
  std::uint64_t more = 0;
  for (;;) {
    // Picks the lowest rank; codes that are not shown yet go first, relayed failures last.
    const auto covered = [&](const Shown& one) { return one.failure.code == mine->code; };
    const int after = !mine ? 3 : mine->relayed ? 2 : std::ranges::any_of(shown, covered) ? 1 : 0;
    const int least = minimum(communicator, mine ? after * size + communicator.rank() : none, what);
    if (least == none) break;
    if (shown.size() == most_failures) {
      more = sum_words(communicator, mine ? 1 : 0);
      break;
    }
    const int rank = least % size;
    std::string text = rank == communicator.rank() ? encode(mine->code, mine->message) : std::string();
    const Failure failure =
        decode(communicator, broadcast_text(communicator, std::move(text), rank, most_per_broadcast, what), rank);
    if (mine && (mine->relayed || (mine->code == failure.code && mine->message == failure.message))) mine.reset();
    shown.push_back({.failure = failure, .rank = rank});
  }
  if (shown.empty()) return;
  std::ranges::sort(shown, {}, &Shown::rank);
  std::vector<Failure> failures;
  for (const Shown& one : shown) failures.push_back(one.failure);
  throw CollectiveError(std::move(failures), text_of(communicator, shown, more),
                        communicator.rank() == shown.front().rank);
}

std::string on_first_rank(const Communicator& communicator, std::string_view what,
                          const std::function<std::string()>& work, const Progress& progress) {
  constexpr char result = 'T', failed = 'E';  // first byte of a broadcast text; an empty text reports progress
  const auto mark = [&] {
    if (progress.mark) progress.mark();
  };
  const auto broadcast = [&](std::string text) {
    return broadcast_text(communicator, std::move(text), 0, most_per_broadcast, what);
  };
  std::string text;
  if (communicator.rank() == 0) {
    const std::optional<OwnFailure> failure = failure_of(communicator, [&] {
      std::shared_ptr<void> watch;
      if (progress.watch)
        watch = progress.watch([&] {
          mark();
          (void)broadcast({});
        });
      text = result + work();
    });
    if (failure) text = failed + encode(failure->code, failure->message);
    text = broadcast(std::move(text));
  } else {
    while ((text = broadcast({})).empty()) mark();
  }
  if (text.front() == result) return text.substr(1);
  Failure failure = decode(communicator, text.substr(1), 0);
  const std::string message = text_of(communicator, {{.failure = failure, .rank = 0}}, 0);
  throw CollectiveError({std::move(failure)}, message, communicator.rank() == 0);
}

}  // namespace trireme::mpi

// SPDX-License-Identifier: Apache-2.0
//
// ranks: 1 2 3 4
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <new>
#include <optional>
#include <set>
#include <thread>

#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::mpi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class Collective : public testing::Test {
 protected:
  /// The error of `call`, after a check that all ranks throw the same and that one of them prints.
  std::optional<CollectiveError> thrown(const std::function<void()>& call) {
    std::optional<CollectiveError> error;
    try {
      call();
    } catch (const CollectiveError& caught) {
      error = caught;
    }
    std::string mine = "none";
    if (error) {
      mine = fmt::format("{} {}", static_cast<int>(error->code()), error->what());
      for (const Failure& one : error->failures())
        mine += fmt::format("|{} {} {}", static_cast<int>(one.code), one.rank, one.message);
    }
    EXPECT_EQ(broadcast_text(world_, mine), mine);
    EXPECT_EQ(sum_words(world_, error && error->prints() ? 1 : 0), error ? 1U : 0U);
    return error;
  }
  std::optional<CollectiveError> tried(const std::function<void()>& work) {
    return thrown([&] { collective_try(world_, "try", work); });
  }
  [[nodiscard]] int rank() const { return world_.rank(); }
  [[nodiscard]] int size() const { return world_.size(); }

  Communicator world_ = Communicator::from(MPI_COMM_WORLD);
};

TEST_F(Collective, TryIsSilentWhereNoRankFails) {
  int done = 0;
  EXPECT_FALSE(tried([&] { ++done; }));
  EXPECT_EQ(done, 1);
}

TEST_F(Collective, TryThrowsOnEveryRankWhereOneFails) {
  for (int failing = 0; failing < size(); ++failing) {
    const auto error = tried([&] {
      if (rank() == failing) throw DataError("no tokens.bin\nin this directory");
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ExitCode::data);
    EXPECT_EQ(error->prints(), rank() == failing);
    EXPECT_THAT(error->what(), HasSubstr("no tokens.bin\nin this directory"));
    EXPECT_EQ(std::string(error->what()).starts_with("[rank "), failing != 0) << "which rank, unless it is the first";
    ASSERT_EQ(error->failures().size(), 1U);
    EXPECT_EQ(error->failures().front().rank, failing);
  }
}

TEST_F(Collective, TryThrowsForEverySetOfFailingRanks) {
  for (unsigned set = 1; set < 1U << static_cast<unsigned>(size()); ++set) {
    const bool fails = (set >> static_cast<unsigned>(rank()) & 1U) != 0;
    const auto error = tried([&] {
      if (fails) throw WriteError(fmt::format("disk {} is full", rank()));
    });
    ASSERT_TRUE(error);
    for (int other = 0; other < size(); ++other)
      EXPECT_EQ(std::string(error->what()).find(fmt::format("disk {} is full", other)) != std::string::npos,
                (set >> static_cast<unsigned>(other) & 1U) != 0);
  }
}

TEST_F(Collective, TryShowsEqualMessagesOnce) {
  const auto error = tried([] { throw WriteError("the disk is full"); });
  ASSERT_TRUE(error);
  EXPECT_STREQ(error->what(), "the disk is full");
  EXPECT_EQ(error->failures().size(), 1U);
}

TEST_F(Collective, TryTakesTheCodeOfTheLowestRankAndShowsTheOtherCodes) {
  const auto error = tried([&] {
    if (rank() == 0) throw ConfigError("mistake");
    throw DataError("no file");
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ExitCode::usage);
  EXPECT_EQ(error->failures().size(), size() == 1 ? 1U : 2U);
}

TEST_F(Collective, TryReportsExceptionsThatAreNoErrors) {
  const auto error = tried([&] {
    if (rank() == size() - 1) throw std::bad_alloc();
    throw std::runtime_error("odd");
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), size() == 1 ? ExitCode::environment : ExitCode::bug);
  EXPECT_THAT(error->what(), HasSubstr("Out of host memory"));
  const auto unknown = tried([&] { throw 3; });
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->code(), ExitCode::bug);
}

TEST_F(Collective, TryPassesBytesThatAreNoTextAndCutsHugeMessages) {
  for (int failing = 0; failing < size(); ++failing) {
    const auto odd = tried([&] {
      if (rank() == failing) throw DataError("\xff\xfe\x80 \xc3");
    });
    ASSERT_TRUE(odd);
    EXPECT_THAT(odd->what(), HasSubstr("\xff\xfe\x80 \xc3"));
    const auto empty = tried([&] {
      if (rank() == failing) throw DataError("");
    });
    EXPECT_TRUE(empty);
    const auto huge = tried([&] {
      std::string text = std::string(1 << 22, 'x') + std::to_string(rank());
      for (std::size_t i = (1 << 20) - 3; i < (1 << 20) + 3; i += 2) text.replace(i, 2, "\u00fc");
      if (rank() >= failing) throw DataError(text);
    });
    ASSERT_TRUE(huge);
    EXPECT_LT(std::string(huge->what()).size(), 5U << 20U);
    EXPECT_THAT(huge->failures().front().message.substr((1 << 20) - 5),
                StartsWith("xx\u00fc ... (4194305 bytes in all)"));
  }
}

TEST_F(Collective, TryShowsAFailureOfAGroupOnceWithItsRank) {
  if (size() < 4) GTEST_SKIP() << "needs two groups";
  const Communicator group = world_.split(rank() / 2, rank());
  for (int failing = 0; failing < size(); ++failing) {
    const auto error = tried([&] {
      collective_try(group, "write a shared file", [&] {
        if (rank() == failing) throw WriteError("the disk is full");
      });
    });
    ASSERT_TRUE(error);
    ASSERT_EQ(error->failures().size(), 1U);
    EXPECT_EQ(error->failures().front().rank, failing);
    EXPECT_EQ(error->failures().front().message, "the disk is full");
  }
}

TEST_F(Collective, TryPassesAFailureOfALargerCommunicator) {
  const Communicator alone = Communicator::from(MPI_COMM_SELF);
  for (int failing = 0; failing < size(); ++failing) {
    const auto error = thrown([&] {
      try {
        collective_try(alone, "try alone", [&] {
          collective_try(world_, "try", [&] {
            if (rank() == failing) throw DataError("no file");
          });
        });
      } catch (const CollectiveError& inner) {
        EXPECT_THAT(inner.what(), HasSubstr("no file"));
        EXPECT_EQ(inner.code(), ExitCode::data);
        collective_try(world_, "try", [&] { throw inner; });
      }
    });
    EXPECT_TRUE(error);
  }
}

TEST_F(Collective, CallsMatchAfterAnyFailure) {
  for (int round = 0; round < 3; ++round)
    for (int failing = 0; failing < size(); ++failing) {
      EXPECT_TRUE(tried([&] {
        if (rank() >= failing) throw WriteError(std::to_string(rank()));
      }));
      EXPECT_EQ(sum_words(world_, 1), static_cast<std::uint64_t>(size()));
    }
}

TEST_F(Collective, FirstRankGivesItsTextToAll) {
  const std::string huge(5 << 20, 'y');
  for (const std::string& text : {std::string(), std::string("a\0b", 3), std::string("\xff\n"), huge}) {
    int runs = 0;
    const std::string got = on_first_rank(world_, "read a file", [&] {
      ++runs;
      return text;
    });
    EXPECT_TRUE(got == text);
    EXPECT_EQ(runs, rank() == 0 ? 1 : 0);
  }
}

TEST_F(Collective, FirstRankFailsOnAll) {
  const std::map<ExitCode, std::function<void()>> cases{
      {ExitCode::usage, [] { throw ConfigError("two mistakes:\n  a\n  b"); }},
      {ExitCode::environment, [] { throw std::bad_alloc(); }},
      {ExitCode::bug, [] { throw 3; }},
      {ExitCode::data, [] { throw DataError(std::string(1 << 22, '\xff')); }}};
  for (const auto& [code, fail] : cases) {
    const auto error = thrown([&] {
      (void)on_first_rank(world_, "read a file", [&] {
        fail();
        return std::string();
      });
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), code);
    EXPECT_EQ(error->prints(), rank() == 0);
    EXPECT_FALSE(std::string(error->what()).starts_with("[rank"));
  }
}

/// Reports progress a few times from another thread.
class Reports {
 public:
  explicit Reports(std::function<void()> report)
      : thread_([report = std::move(report)] {
          for (int i = 0; i < 3; ++i) report();
        }) {}

 private:
  std::jthread thread_;
};

TEST_F(Collective, FirstRankReportsProgressToAllBeforeItsResultOrFailure) {
  for (const bool fails : {false, true}) {
    int marks = 0;
    const Progress progress{.mark = [&] { ++marks; },
                            .watch = [](std::function<void()> report) -> std::shared_ptr<void> {
                              return std::make_shared<Reports>(std::move(report));
                            }};
    const auto error = thrown([&] {
      EXPECT_EQ(on_first_rank(
                    world_, "read a file",
                    [&] {
                      if (fails) throw DataError("no file");
                      return std::string("read");
                    },
                    progress),
                "read");
    });
    EXPECT_EQ(error.has_value(), fails);
    EXPECT_EQ(marks, 3);
  }
}

}  // namespace
}  // namespace trireme::mpi

// Fault, hangs: any rank fails in a collective step -> all ranks leave with the same exit code; up to four different
//   messages

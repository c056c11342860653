// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/scatter.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "mpi/await.hpp"
#include "trireme/base/error.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::mpi {
namespace {

struct Size {
  std::int64_t bytes = 0;  ///< of the rank's text
  std::int64_t calls = 0;  ///< number of pieces of the longest text
};

/// The size of each rank's text.
Size scatter_sizes(const Communicator& communicator, const std::vector<std::string>& texts, std::int64_t most_of_rank) {
  std::vector<Size> sizes;
  std::int64_t longest = 0;
  for (const std::string& text : texts) {
    sizes.push_back({.bytes = static_cast<std::int64_t>(text.size())});
    longest = std::max(longest, sizes.back().bytes);
  }
  for (Size& size : sizes) size.calls = (longest + most_of_rank - 1) / most_of_rank;
  Size mine;
  MPI_Request request = MPI_REQUEST_NULL;
  await(communicator,
        MPI_Iscatter(sizes.data(), 2, MPI_INT64_T, &mine, 2, MPI_INT64_T, 0, communicator.handle(), &request), request,
        "scatter sizes of texts");
  return mine;
}

}  // namespace

std::string scatter_texts(const Communicator& communicator, std::vector<std::string> texts, std::size_t most_per_call) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  if (communicator.rank() == 0)
    invariant(texts.size() == ranks, "there is a text for each rank");
  else
    texts.clear();
  const std::size_t most_of_rank = std::max<std::size_t>(1, most_per_call / ranks);
  const Size size = scatter_sizes(communicator, texts, static_cast<std::int64_t>(most_of_rank));
  std::string mine(static_cast<std::size_t>(size.bytes), '\0');
  for (std::size_t at = 0, call = 0; call < static_cast<std::size_t>(size.calls); ++call, at += most_of_rank) {
    std::string all;
    std::vector<int> counts, offsets;
    for (std::string& text : texts) {
      const std::size_t begin = std::min(at, text.size());
      const std::size_t count = std::min(most_of_rank, text.size() - begin);
      offsets.push_back(static_cast<int>(all.size()));
      counts.push_back(static_cast<int>(count));
      all.append(text, begin, count);
    }
    const std::size_t begin = std::min(at, mine.size());
    const int count = static_cast<int>(std::min(most_of_rank, mine.size() - begin));
    MPI_Request request = MPI_REQUEST_NULL;
    await(communicator,
          MPI_Iscatterv(all.data(), counts.data(), offsets.data(), MPI_CHAR, mine.data() + begin, count, MPI_CHAR, 0,
                        communicator.handle(), &request),
          request, "scatter texts");
  }
  return mine;
}

}  // namespace trireme::mpi

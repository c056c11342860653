// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/gather.hpp"

#include <limits>

#include "mpi/await.hpp"
#include "trireme/base/error.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::mpi {
std::vector<std::string> gather_texts(const Communicator& communicator, const std::string& text) {
  const bool root = communicator.rank() == 0;
  const auto ranks = static_cast<std::size_t>(communicator.size());
  invariant(text.size() <= std::numeric_limits<int>::max(), "a gathered text is shorter than 2 GiB");
  const int mine = static_cast<int>(text.size());
  std::vector<int> sizes(root ? ranks : 0);
  MPI_Request request = MPI_REQUEST_NULL;
  await(communicator, MPI_Igather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, communicator.handle(), &request),
        request, "gather sizes of texts");
  std::vector<int> offsets;
  std::int64_t total = 0;
  for (const int size : sizes) {
    offsets.push_back(static_cast<int>(total));
    total += size;
  }
  invariant(total <= std::numeric_limits<int>::max(), "gathered texts are shorter than 2 GiB together");
  std::string all(static_cast<std::size_t>(total), '\0');
  await(communicator,
        MPI_Igatherv(text.data(), mine, MPI_CHAR, all.data(), sizes.data(), offsets.data(), MPI_CHAR, 0,
                     communicator.handle(), &request),
        request, "gather texts");
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[rank]), static_cast<std::size_t>(sizes[rank])));
  return texts;
}

bool any_rank(const Communicator& communicator, bool flag) {
  int set = flag ? 1 : 0;
  MPI_Request request = MPI_REQUEST_NULL;
  await(communicator, MPI_Iallreduce(MPI_IN_PLACE, &set, 1, MPI_INT, MPI_MAX, communicator.handle(), &request), request,
        "agree on a flag");
  return set != 0;
}

std::uint64_t sum_words(const Communicator& communicator, std::uint64_t word) {
  MPI_Request request = MPI_REQUEST_NULL;
  await(communicator, MPI_Iallreduce(MPI_IN_PLACE, &word, 1, MPI_UINT64_T, MPI_SUM, communicator.handle(), &request),
        request, "sum words");
  return word;
}

}  // namespace trireme::mpi

// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/threads.hpp"

#include <ATen/Parallel.h>

#include <cstdlib>

namespace trireme::train {

int use_threads(const mpi::Topology& topology, std::int64_t device_threads) {
  const char* omp = std::getenv("OMP_NUM_THREADS");
  const int threads = mpi::threads_for_rank(topology, device_threads, omp == nullptr ? "" : omp);
  at::set_num_threads(threads);
  return threads;
}

}  // namespace trireme::train

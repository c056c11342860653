// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/replicas.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/device/buffer.hpp"

namespace trireme::train {

namespace {

/// For a test.
void flip_a_bit(at::Tensor& tensor) {
  const at::Tensor here = device::on_host(tensor);
  *static_cast<unsigned char*>(here.mutable_data_ptr()) ^= 1U;
  if (!here.is_same(tensor)) tensor.copy_(here);
}

}  // namespace

std::uint64_t state_digest(Job& job) {
  std::uint64_t digest = 0;
  for (int b = 0; b < job.model().param_blocks(); ++b) {
    store::ParameterStore& store = job.store();
    for (at::Tensor* part :
         {&store.master(ParamBlock{b}), &store.first_moment(ParamBlock{b}), &store.second_moment(ParamBlock{b})})
      digest = XXH3_64bits_withSeed(device::on_host(*part).const_data_ptr(), static_cast<std::size_t>(part->nbytes()),
                                    digest);
  }
  return digest;
}

std::string drifted(const mesh::Mesh& mesh, const std::vector<std::uint64_t>& digests) {
  std::vector<int> odd;
  for (int s = 0; s < mesh.shard; ++s) {
    const auto digest_of = [&](int replica) { return digests[static_cast<std::size_t>(replica * mesh.shard + s)]; };
    std::map<std::uint64_t, int> votes;
    for (int r = 0; r < mesh.replicate; ++r) ++votes[digest_of(r)];
    std::uint64_t right = digest_of(0);
    for (int r = 1; r < mesh.replicate; ++r)
      if (votes[digest_of(r)] > votes[right]) right = digest_of(r);
    for (int r = 0; r < mesh.replicate; ++r)
      if (digest_of(r) != right) odd.push_back(r * mesh.shard + s);
  }
  if (odd.empty()) return "";
  return fmt::format("dp rank{} {}", odd.size() == 1 ? "" : "s", fmt::join(odd, ", "));
}

void check_replicas(Job& job) {
  if (fault::point("replica.flip")) flip_a_bit(job.store().master(ParamBlock{0}));
  const std::string odd = drifted(job.mesh(), job.control().gather_words(state_digest(job)));
  if (odd.empty()) return;
  throw NumericsError(
      fmt::format("replicas have drifted apart: {} of {} no longer hold{} the bits that the other replicas hold. "
                  "Memory or arithmetic of "
                  "that rank's node is corrupt: take the node out, and go on from the last checkpoint.",
                  odd, job.mesh().text(), odd.find(',') == std::string::npos ? "s" : ""));
}

}  // namespace trireme::train

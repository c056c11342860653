// SPDX-License-Identifier: Apache-2.0
#include "train/engine/replicas.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/text.hpp"
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
  job.finish_updates();
  std::uint64_t digest = 0;
  for (int b = 0; b < job.model().param_blocks(); ++b) {
    store::ParameterStore& store = job.store();
    const auto add = [&](const at::Tensor& part) {
      digest =
          XXH3_64bits_withSeed(device::on_host(part).const_data_ptr(), static_cast<std::size_t>(part.nbytes()), digest);
    };
    add(store.masters(ParamBlock{b}));
    for (int i = 0; i < store.states(); ++i) add(store.state(ParamBlock{b}, i));
  }
  return digest;
}

Drift compare_replicas(const mesh::Mesh& mesh, const std::vector<std::uint64_t>& digests) {
  Drift drift;
  for (int s = 0; s < mesh.shard; ++s) {
    std::map<std::uint64_t, std::vector<int>> groups;  // dp ranks by their digest
    for (int r = 0; r < mesh.replicate; ++r) {
      const int dp_rank = r * mesh.shard + s;
      groups[digests[static_cast<std::size_t>(dp_rank)]].push_back(dp_rank);
    }
    if (groups.size() == 1) continue;
    const auto size = [](const auto& group) { return group.second.size(); };
    const std::size_t most = size(*std::ranges::max_element(groups, {}, size));
    const bool decided = most > 1 && std::ranges::count(groups, most, size) == 1;
    for (const auto& [digest, ranks] : groups) {
      if (decided && ranks.size() == most) continue;
      std::vector<int>& blamed = decided ? drift.wrong : drift.undecided;
      blamed.insert(blamed.end(), ranks.begin(), ranks.end());
    }
  }
  std::ranges::sort(drift.wrong);
  std::ranges::sort(drift.undecided);
  return drift;
}

std::string to_text(const Drift& drift, const mesh::Mesh& mesh, const std::function<std::string(int dp_rank)>& name) {
  const auto names = [&](const std::vector<int>& ranks) {
    constexpr std::size_t most = 8;
    std::vector<std::string> shown;
    for (std::size_t i = 0; i < std::min(most, ranks.size()); ++i) shown.push_back(name(ranks[i]));
    if (ranks.size() > most) shown.push_back(fmt::format("{} more", ranks.size() - most));
    return join(shown, ", ");
  };
  std::vector<std::string> sentences;
  if (!drift.wrong.empty())
    sentences.push_back(
        fmt::format("{} no longer hold{} the bits on which the other replicas agree: the memory or the arithmetic of "
                    "that node is corrupt. Exclude the node and resume from the last checkpoint.",
                    names(drift.wrong), drift.wrong.size() == 1 ? "s" : ""));
  if (!drift.undecided.empty())
    sentences.push_back(fmt::format(
        "{} hold different bits of the same parameters, and {}: the memory or the arithmetic of one of these nodes is "
        "corrupt. Resume from the last checkpoint on other nodes, and test these.",
        names(drift.undecided),
        mesh.replicate == 2 ? "two replicas do not show which one is wrong"
                            : "no majority of the replicas shows which one is wrong"));
  if (sentences.empty()) return "";
  return fmt::format("replicas have drifted apart ({}): {}", mesh.text(), join(sentences, " "));
}

void check_replicas(Job& job) {
  job.finish_updates();
  if (fault::point("replica.flip")) {
    store::ParameterStore& store = job.store();
    flip_a_bit(store.split_masters() ? store.remainder(ParamBlock{0}) : store.master(ParamBlock{0}));
  }
  const mesh::Mesh mesh = job.mesh().of_storage();  // all of whose dp ranks hold something else
  const Drift drift = compare_replicas(mesh, job.control().gather_words(state_digest(job)));
  if (drift == Drift{}) return;
  throw NumericsError(to_text(drift, mesh, [&](int dp_rank) { return job.name_of(DpRank{dp_rank}); }));
}

}  // namespace trireme::train

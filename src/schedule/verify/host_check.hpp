// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/schedule/buffers.hpp"
#include "trireme/schedule/concerns.hpp"

namespace trireme::schedule {

/// Checks of copies between device and host in a schedule:
/// part of `verify`. Each verb's check returns its complaints.
class HostCheck {
 public:
  HostCheck(const Schedule& schedule, const model::Model& model, int replicas, bool slots);

  using Wrong = std::vector<std::string>;
  [[nodiscard]] Wrong operator()(const Unshard& op);
  [[nodiscard]] Wrong operator()(const ReduceScatter& op);
  [[nodiscard]] Wrong operator()(const AllReduce& op);
  [[nodiscard]] Wrong operator()(const AllReduceReplicated& op);
  [[nodiscard]] Wrong operator()(const ClipNorm& op);
  [[nodiscard]] Wrong operator()(const Update& op);
  [[nodiscard]] Wrong operator()(const Upload& op);
  [[nodiscard]] Wrong operator()(const OffloadGradient& op);
  [[nodiscard]] Wrong operator()(const SumSquares& op);
  [[nodiscard]] Wrong operator()(const OffloadActivations& op);
  [[nodiscard]] Wrong operator()(const DropActivations& op);
  [[nodiscard]] Wrong operator()(const AllocateActivations& op);
  [[nodiscard]] Wrong operator()(const ReloadActivations& op);
  /// A block's activations are about to be read.
  [[nodiscard]] Wrong reads(Block block, Microbatch microbatch);
  // Nothing between device and host.
  [[nodiscard]] Wrong operator()(const Reshard&) { return {}; }
  [[nodiscard]] Wrong operator()(const AllocateGradient&) { return {}; }
  [[nodiscard]] Wrong operator()(const FreeGradient&) { return {}; }
  template <class Other>
  requires(of_stage<Other> || between_stages<Other> || of_edge<Other> ||
           (!of_parameters<Other> && !of_microbatch<Other>)) [[nodiscard]] Wrong
  operator()(const Other&) {
    return {};
  }
  [[nodiscard]] Wrong at_end() const;

 private:
  /// A gradient shard between its reduction and the host.
  struct Waiting {
    Slot slot;
    bool summed = false;
  };
  enum class Way { copied, dropped, allocated };
  [[nodiscard]] const std::string& name(ParamBlock block) const { return model_[block].name; }

  const model::Model& model_;
  int replicas_;
  bool slots_;
  std::vector<OnHost> on_host_;
  std::set<ParamBlock> host_updates_, arrived_, squared_, updated_, uploaded_, unsummed_, summed_;
  std::set<std::pair<ParamBlock, Copies>> copies_summed_;
  std::map<ParamBlock, Waiting> waiting_;
  std::map<ParamBlock, Slot> staged_;
  std::map<std::pair<Block, Microbatch>, Way> away_;
};

}  // namespace trireme::schedule

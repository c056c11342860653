// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/config/load.hpp"
#include "trireme/model/model.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/pipeline/build.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::planner {

/// The values that were made last, by key.
template <class Key, class Value>
class Recent {
 public:
  explicit Recent(std::size_t most) : most_(most) {}
  /// That of `key`, made by `make()` unless it is here.
  template <class Make>
  [[nodiscard]] std::shared_ptr<const Value> of(const Key& key, const Make& make) {
    for (const auto& [known, value] : entries_)
      if (known == key) return value;
    auto value = std::make_shared<const Value>(make());
    if (entries_.size() == most_) entries_.erase(entries_.begin());
    entries_.emplace_back(key, value);
    return value;
  }

 private:
  std::size_t most_;
  std::vector<std::pair<Key, std::shared_ptr<const Value>>> entries_;  ///< the latest last
};

/// All of a policy, to compare: a field that it gets later does not compile here until it is listed.
inline auto fields_of(const schedule::Policy& policy) {
  const auto& [sync, reshard, recompute, activations, offload, in_place, prefetch_bytes, compute, replicas, transient,
               updates_beside, muon] = policy;
  const auto& [shards, gradients] = in_place;
  const auto& [after_forward, after_backward, group] = reshard;
  const auto& [mode, every] = recompute;
  const auto& [on, min_bytes, in_flight] = activations;
  const auto& [what, fraction] = offload;
  return std::tuple(sync, after_forward, after_backward, group, mode, every, on, min_bytes, in_flight, what, fraction,
                    shards, gradients, prefetch_bytes, compute, replicas, transient, updates_beside, muon);
}

/// Shared results of the candidates of a search: those of one run file, whose axes, number of layers and policies
/// change, but no other property of the model.
class PlanCache {
 public:
  using ModelPointer = std::shared_ptr<const model::Model>;
  using SchedulePointer = std::shared_ptr<const schedule::Schedule>;
  using Needs = std::vector<schedule::Need>;

  /// The part of the model that the first rank of each axis holds.
  [[nodiscard]] ModelPointer model(const config::RunConfig& config, const config::Resolved& mesh);
  [[nodiscard]] std::shared_ptr<const shard::Layout> layout(const ModelPointer& model, int shards);
  /// A step without a pipeline, not verified.
  [[nodiscard]] SchedulePointer step(const ModelPointer& model, int microbatches, schedule::Policy policy);
  /// Each pipeline rank's part of the model, and the costs of its chunks.
  struct Parts {
    std::vector<model::PipelinePart> ranks;
    schedule::ActionCosts costs;
  };
  using PartsPointer = std::shared_ptr<const Parts>;
  [[nodiscard]] PartsPointer parts(const config::RunConfig& config, const ModelPointer& whole,
                                   const schedule::Pipeline& pipeline);
  /// A step of every rank of a pipeline, not verified.
  [[nodiscard]] std::shared_ptr<const std::vector<schedule::Schedule>> steps(const PartsPointer& parts,
                                                                             const schedule::Pipeline& pipeline,
                                                                             schedule::Policy policy);
  /// model::flops_per_token.
  [[nodiscard]] double flops_per_token(const ModelPointer& model, std::int64_t seq_len);
  /// Needs of a step of `model`.
  [[nodiscard]] std::shared_ptr<const Needs> needs(const SchedulePointer& schedule, const ModelPointer& model);

 private:
  struct ModelKey {
    std::int64_t layers;
    model::TensorPart part;
    friend bool operator==(const ModelKey&, const ModelKey&) = default;
  };
  struct StepKey {
    ModelPointer model;
    int microbatches;
    decltype(fields_of(schedule::Policy{})) policy;
    friend bool operator==(const StepKey&, const StepKey&) = default;
  };
  struct PartsKey {
    ModelPointer whole;
    schedule::PipelineKind kind;
    int ranks, chunks;
    std::vector<std::int64_t> layers;
    friend bool operator==(const PartsKey&, const PartsKey&) = default;
  };
  struct StepsKey {
    PartsPointer parts;
    schedule::Pipeline pipeline;
    decltype(fields_of(schedule::Policy{})) policy;
    friend bool operator==(const StepsKey&, const StepsKey&) = default;
  };
  static constexpr std::size_t most = 64;
  static constexpr std::size_t most_pipelines = 16;  ///< of several schedules each
  Recent<ModelKey, model::Model> models_{most};
  Recent<std::pair<ModelPointer, int>, shard::Layout> layouts_{most};
  Recent<std::pair<ModelPointer, std::int64_t>, double> flops_{most};
  Recent<StepKey, schedule::Schedule> steps_{most};
  Recent<PartsKey, Parts> parts_{most_pipelines};
  Recent<StepsKey, std::vector<schedule::Schedule>> pipeline_steps_{most_pipelines};
  Recent<SchedulePointer, Needs> needs_{2 * most};
};

}  // namespace trireme::planner

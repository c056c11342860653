// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/config/run_config.hpp"

namespace trireme::config {

/// A choice and its name in a run file.
template <class Choice>
using Name = std::pair<Choice, std::string_view>;

/// The names of every choice of an enumeration of the run file, in the order in which help shows them.
std::span<const Name<Export>> names_of(Export);
std::span<const Name<Init>> names_of(Init);
std::span<const Name<RopeType>> names_of(RopeType);
std::span<const Name<TokenFormat>> names_of(TokenFormat);
std::span<const Name<Packing>> names_of(Packing);
std::span<const Name<SyncPolicy>> names_of(SyncPolicy);
std::span<const Name<DType>> names_of(DType);
std::span<const Name<Fp8>> names_of(Fp8);
std::span<const Name<Reduce>> names_of(Reduce);
std::span<const Name<Masters>> names_of(Masters);
std::span<const Name<Recompute>> names_of(Recompute);
std::span<const Name<ContextMethod>> names_of(ContextMethod);
std::span<const Name<PipelineKind>> names_of(PipelineKind);
std::span<const Name<Offload>> names_of(Offload);
std::span<const Name<OptimizerName>> names_of(OptimizerName);
std::span<const Name<MuonScale>> names_of(MuonScale);
std::span<const Name<NewtonSchulz>> names_of(NewtonSchulz);
std::span<const Name<NewtonSchulzPrecision>> names_of(NewtonSchulzPrecision);
std::span<const Name<LrSchedule>> names_of(LrSchedule);
std::span<const Name<DataOnResume>> names_of(DataOnResume);
std::span<const Name<DeviceType>> names_of(DeviceType);
std::span<const Name<Backend>> names_of(Backend);

/// Name of a choice in a run file: `to_text(SyncPolicy::automatic) == "auto"`.
template <class Choice>
requires requires(Choice choice) { names_of(choice); }
[[nodiscard]] std::string_view to_text(Choice choice) {
  for (const auto& [value, name] : names_of(choice))
    if (value == choice) return name;
  throw BugError("a choice of the run file has no name");
}

/// The first setting that only NCCL honours, "nccl_max_ctas = 8"; empty: none is set.
[[nodiscard]] std::string nccl_setting(const Comm& comm);

}  // namespace trireme::config

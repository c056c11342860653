// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/access.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::schedule {
namespace {

void add_once(std::vector<ParamBlock>& blocks, ParamBlock block) {
  if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
}

std::vector<ParamBlock> blocks_of(const model::ComputeBlock& block, StageRange range) {
  std::vector<ParamBlock> found;
  for (int s = range.first; s < range.last; ++s)
    for (const model::ParamRef ref : block.stages[static_cast<std::size_t>(s)].parameters) add_once(found, ref.block);
  return found;
}

}  // namespace

std::string_view to_text(Lane lane) {
  switch (lane) {
    case Lane::compute: return "compute";
    case Lane::gather: return "gather";
    case Lane::reduce: return "reduce";
    case Lane::device_to_host: return "device to host";
    case Lane::host_to_device: return "host to device";
    case Lane::host: return "host";
    case Lane::optimizer: return "optimizer";
    case Lane::tensor: return "tensor";
    case Lane::context: return "context";
    case Lane::expert: return "expert";
    case Lane::send: return "send";
    case Lane::receive: return "receive";
  }
  return "?";
}

StageRange stages_of(const model::ComputeBlock& block, const std::optional<Stage>& stage) {
  if (stage) return {stage->value, stage->value + 1};
  return {0, static_cast<int>(block.stages.size())};
}

const model::Stage* partitioned_stage(const model::Model& model, Block block, const std::optional<Stage>& stage) {
  if (!stage) return nullptr;
  const model::Stage& found = model[block].stages[static_cast<std::size_t>(stage->value)];
  return model::is_partitioned(found) ? &found : nullptr;
}

std::vector<ParamBlock> parameters_read(const Op& op, const model::Model& model) {
  if (const auto* rebuild = std::get_if<Rebuild>(&op))
    return blocks_of(model[rebuild->block], stages_of(model[rebuild->block], rebuild->segment));
  if (const auto* forward = std::get_if<Forward>(&op))
    return blocks_of(model[forward->block], stages_of(model[forward->block], forward->stage));
  if (const auto* recompute = std::get_if<Recompute>(&op))
    return blocks_of(model[recompute->block], stages_of(model[recompute->block], recompute->stage));
  const auto* backward = std::get_if<Backward>(&op);
  if (backward == nullptr || backward->part == BackwardPart::weight) return {};
  const model::ComputeBlock& block = model[backward->block];
  const StageRange range = stages_of(block, backward->stage);
  const bool indices_only = std::all_of(block.stages.begin() + range.first, block.stages.begin() + range.last,
                                        [](const model::Stage& s) { return model::looks_up(s.kind); });
  return indices_only ? std::vector<ParamBlock>{} : blocks_of(block, range);
}

std::optional<Microbatch> computes(const Op& op) {
  if (const auto* forward = std::get_if<Forward>(&op)) return forward->microbatch;
  if (const auto* recompute = std::get_if<Recompute>(&op)) return recompute->microbatch;
  if (const auto* backward = std::get_if<Backward>(&op)) return backward->microbatch;
  if (const auto* rebuild = std::get_if<Rebuild>(&op)) return rebuild->microbatch;
  return std::nullopt;
}

std::vector<ParamBlock> gradients_written(const Op& op, const model::Model& model) {
  const auto* backward = std::get_if<Backward>(&op);
  if (backward == nullptr || backward->part == BackwardPart::input) return {};
  return blocks_of(model[backward->block], stages_of(model[backward->block], backward->stage));
}

std::string to_text(const Resource& resource, const model::Model& model) {
  struct Text {
    const model::Model& model;
    static std::string slot(std::string_view kind, Slot s) { return fmt::format("{}{}.{}", kind, s.ring, s.index); }
    [[nodiscard]] std::string of(std::string_view kind, ParamBlock block) const {
      return fmt::format("{}({})", kind, model[block].name);
    }
    static std::string of(std::string_view kind, Microbatch m) { return fmt::format("{}(m{})", kind, m.value); }

    std::string operator()(const resource::ParameterSlot& r) const { return slot("ring", r.slot); }
    std::string operator()(const resource::GradientSlot& r) const { return slot("grad", r.slot); }
    std::string operator()(const resource::MasterShard& r) const { return of("shard", r.block); }
    std::string operator()(const resource::GradientShard& r) const { return of("gradient shard", r.block); }
    std::string operator()(const resource::PartialShard&) const { return "partial gradient shard"; }
    std::string operator()(const resource::GroupCopy& r) const { return of("group copy", r.block); }
    std::string operator()(const resource::Hidden& r) const { return of("hidden", r.m); }
    std::string operator()(const resource::Recomputed& r) const { return of("recomputed", r.m); }
    std::string operator()(const resource::Branch& r) const { return of("branch", r.m); }
    std::string operator()(const resource::BranchAgain& r) const { return of("branch again", r.m); }
    std::string operator()(const resource::Vocabulary& r) const { return of("vocabulary", r.m); }
    std::string operator()(const resource::Keys& r) const { return of("keys", r.m); }
    std::string operator()(const resource::Rows& r) const { return of("rows", r.m); }
    std::string operator()(const resource::Statistics& r) const { return of("statistics", r.m); }
    std::string operator()(const resource::Counts& r) const {
      return fmt::format("counts({}, m{})", model[r.block].name, r.m.value);
    }
    std::string operator()(const resource::Saved& r) const {
      const model::ComputeBlock& block = model[r.block];
      return fmt::format("activation({}, {}, m{})", block.name,
                         block.stages[static_cast<std::size_t>(r.stage.value)].name, r.m.value);
    }
    std::string operator()(const resource::DeviceShard& r) const { return of("device shard", r.block); }
    std::string operator()(const resource::UploadSlot& r) const { return slot("up", r.slot); }
    std::string operator()(const resource::DownloadSlot& r) const { return slot("down", r.slot); }
    std::string operator()(const resource::HostCopy& r) const {
      return fmt::format("host copy({}, m{})", model[r.block].name, r.m.value);
    }
    std::string operator()(const resource::NormPart& r) const { return of("squares", r.block); }
    std::string operator()(const resource::SendSlot& r) const { return slot("out", r.slot); }
    std::string operator()(const resource::ReceiveSlot& r) const { return slot("in", r.slot); }
    std::string operator()(const resource::MatrixPieces& r) const { return fmt::format("pieces({})", r.slot); }
    std::string operator()(const resource::OwnedMatrices& r) const { return fmt::format("matrices({})", r.slot); }
    std::string operator()(const resource::Norm&) const { return "norm"; }
  };
  return std::visit(Text{model}, resource);
}

}  // namespace trireme::schedule

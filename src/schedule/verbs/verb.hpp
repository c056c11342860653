// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/line.hpp"
#include "trireme/base/error.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/stage_access.hpp"
#include "trireme/schedule/text.hpp"

/// Descriptions of verbs, in addition to their fields in op.hpp: one specialization of `Verb` each, in a header per
/// family. Included only by verbs.cpp.
namespace trireme::schedule {

/// Slot of each unsharded parameter block while the ops are walked; nothing: the shard is used in place.
using Residence = std::map<ParamBlock, std::optional<Slot>>;

/// Reads and writes of one op, collected from its verb's description.
class Effects {
 public:
  Effects(const model::Model& model, Residence& residence, const Op& op) : model(model), residence(residence), op(op) {}

  void read(const Resource& resource) { out.reads.push_back(resource); }
  void write(const Resource& resource) { out.writes.push_back(resource); }
  void update(const Resource& resource) { read(resource), write(resource); }
  /// Tensors between stages: each resource once.
  void access(const TensorAccess& tensors, Microbatch m) {
    const auto each_once = [&](TensorSet set, std::vector<Resource>& to) {
      const auto begin = static_cast<std::ptrdiff_t>(to.size());
      set.for_each([&](TensorRef tensor) {
        const Resource resource = resource_of(tensor, m);
        if (std::find(to.begin() + begin, to.end(), resource) == to.end()) to.push_back(resource);
      });
    };
    each_once(tensors.reads, out.reads);
    each_once(tensors.writes, out.writes);
  }

  /// Slot of a parameter block; nothing: the shard is used in place.
  [[nodiscard]] std::optional<Slot> slot(ParamBlock block) const {
    const auto found = residence.find(block);
    invariant(found != residence.end(),
              fmt::format("`{}` reads {}, which is not unsharded", print(op, model), model[block].name));
    return found->second;
  }
  void read_parameters() {
    for (const ParamBlock block : parameters_read(op, model)) {
      if (const std::optional<Slot> lies = slot(block))
        read(resource::ParameterSlot{*lies});
      else
        read_shard(block);
    }
  }
  /// Reads the shard that is gathered.
  void read_shard(ParamBlock block) {
    read(resource::MasterShard{block});
    read(resource::DeviceShard{block});
  }

  const model::Model& model;
  Residence& residence;
  const Op& op;
  Access out{};
};

/// The description of verb `Op`; a verb of op.hpp without one does not compile:
///   names    first words of its lines
///   name     of verbs with several names only: that of an op
///   lane     where it runs
///   effects  its reads and writes
///   print    its line after the name, and the inverse `parse`
///   copy     name in metrics, for copies between device and host only
template <class Verb>
struct Description;

template <std::size_t count>
using Names = std::array<std::string_view, count>;

// Parts of lines.
inline std::string compute_text(const model::Model& model, Block block, const std::optional<Stage>& stage,
                                Microbatch m) {
  const model::ComputeBlock& b = model[block];
  const std::string part = stage ? "." + b.stages[static_cast<std::size_t>(stage->value)].name : "";
  return fmt::format("{}{} m{}", b.name, part, m.value);
}
inline std::string slot_text(std::string_view kind, Slot s) { return fmt::format("{}{}.{}", kind, s.ring, s.index); }
/// Behind an arrow, if there is one.
inline std::string slot_text(std::string_view arrow, std::string_view kind, const std::optional<Slot>& s) {
  return s ? fmt::format(" {} {}", arrow, slot_text(kind, *s)) : "";
}

}  // namespace trireme::schedule

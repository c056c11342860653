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

/// What a verb is, besides its fields in op.hpp: one specialisation of `Verb` each, in a header for each family. Only
/// verbs.cpp includes them.
namespace trireme::schedule {

/// Which slot each unsharded parameter block lies in while the ops are walked; nothing: where its shard lies.
using Residence = std::map<ParamBlock, std::optional<Slot>>;

/// What one op reads and writes, as its verb's description tells.
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

  /// Which slot a parameter block lies in; nothing: where its shard lies.
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
  /// What is gathered of a block.
  void read_shard(ParamBlock block) {
    read(resource::MasterShard{block});
    read(resource::DeviceShard{block});
  }

  const model::Model& model;
  Residence& residence;
  const Op& op;
  Access out{};
};

/// The description of verb `Op`; there is none for a verb that op.hpp has alone, which then does not compile:
///   names    what its lines begin with
///   name     of verbs with several names only: that of an op
///   lane     where it runs
///   effects  what it reads and writes
///   print    its line behind the name, `parse` the inverse: of what stands behind the name
///   copy     of copies between device and host only: what metrics call them
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
/// Behind an arrow, where there is one.
inline std::string slot_text(std::string_view arrow, std::string_view kind, const std::optional<Slot>& s) {
  return s ? fmt::format(" {} {}", arrow, slot_text(kind, *s)) : "";
}

}  // namespace trireme::schedule

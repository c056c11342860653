// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>

#include "trireme/model/stage_tensors.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/op.hpp"

/// The tensors that ops on sharded stages read and write, by name. The effects of these ops, and so the needs of a
/// schedule, follow from them; the executor permits no other access.
namespace trireme::schedule {

/// A tensor of one microbatch. forward: its value; backward: its gradient; recompute: its value in a recompute; again:
/// a value that is gathered or normed again for a backward.
struct TensorRef {
  model::TensorId id;
  Phase phase;
};

class TensorSet {
 public:
  constexpr TensorSet() = default;
  constexpr TensorSet(Phase phase, std::initializer_list<model::TensorId> ids) {
    for (const model::TensorId id : ids) add({id, phase});
  }
  constexpr void add(TensorRef tensor) { bits_ |= bit(tensor); }
  [[nodiscard]] constexpr bool has(TensorRef tensor) const { return (bits_ & bit(tensor)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  friend constexpr TensorSet operator|(TensorSet a, TensorSet b) { return TensorSet(a.bits_ | b.bits_); }
  friend constexpr bool operator==(TensorSet, TensorSet) = default;
  /// Calls each(TensorRef) for every tensor of the set.
  template <class Each>
  constexpr void for_each(const Each& each) const {
    for (std::uint64_t left = bits_; left != 0; left &= left - 1) {
      const int index = std::countr_zero(left);
      each(TensorRef{static_cast<model::TensorId>(index % model::tensor_ids),
                     static_cast<Phase>(index / model::tensor_ids)});
    }
  }

 private:
  explicit constexpr TensorSet(std::uint64_t bits) : bits_(bits) {}
  static constexpr std::uint64_t bit(TensorRef tensor) {
    return std::uint64_t{1} << (static_cast<int>(tensor.phase) * model::tensor_ids + static_cast<int>(tensor.id));
  }
  std::uint64_t bits_ = 0;
};

struct TensorAccess {
  TensorSet reads;
  TensorSet writes;  ///< those that the op frees included, unless nothing depends on that
};

// One stage of an op.
[[nodiscard]] TensorAccess tensors_of(const Forward& op, const model::Model& model, Stage stage);
[[nodiscard]] TensorAccess tensors_of(const Recompute& op, const model::Model& model, Stage stage);
[[nodiscard]] TensorAccess tensors_of(const Backward& op, const model::Model& model, Stage stage);
/// An op on one sharded stage.
template <class Compute>
[[nodiscard]] TensorAccess tensors_of(const Compute& op, const model::Model& model) {
  return tensors_of(op, model, *op.stage);
}
[[nodiscard]] TensorAccess tensors_of(const Rebuild& op, const model::Model& model);
[[nodiscard]] TensorAccess tensors_of(const Exchanged& op, const model::Model& model);

/// The tensor that an exchange sends. Of gather_keys with Phase::again one that its stage saved.
[[nodiscard]] TensorRef sent_by(const Exchanged& op, const model::Stage& stage);
/// The tensor that an exchange writes: the sent one or another.
[[nodiscard]] TensorRef delivered_by(const Exchanged& op, const model::Stage& stage);

/// The resource that a tensor belongs to. Several tensors share one.
[[nodiscard]] Resource resource_of(TensorRef tensor, Microbatch m);

}  // namespace trireme::schedule

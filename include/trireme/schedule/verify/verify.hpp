// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/schedule/needs.hpp"

namespace trireme::schedule {

/// What a schedule must hold at a stage of its building.
struct Complete {
  bool unshard = true;    ///< parameters are gathered before they are read
  bool reduction = true;  ///< every microbatch's gradient is reduced exactly once
  bool update = true;     ///< every block is clipped and updated once
  bool slots = true;      ///< slots are assigned
};

/// Everything that is wrong with a schedule, each line pointing at the op (index and text). Empty: sound.
/// Checked: parameters are unsharded when used, freed once and all freed at the end; no slot holds two blocks at once;
/// stages of a microbatch run in order (`verify_order`); a backward follows its forward once; every microbatch's
/// gradient is reduced exactly once, after its last writer, into a shard that is overwritten first and added to later;
/// replicas are summed once, after the last reduce-scatter; the norm sees all gradients; every block is updated once.
[[nodiscard]] std::vector<std::string> verify(const Schedule& schedule, const model::Model& model, int replicas,
                                              Complete complete = {});

/// The part of `verify` that follows every microbatch through the model: the forwards of its stages and blocks run in
/// the model's order, its backwards in the reverse order after all of them, a recompute from its block's first stage to
/// its last, each on what the op before it left; nothing overwrites what stands between two of them. Microbatches may
/// stand in any order among each other.
[[nodiscard]] std::vector<std::string> verify_order(const Schedule& schedule, const model::Model& model);

/// The part of `verify` that looks at what stands between stages on the tensor axis: a stage reads what was gathered
/// for it, and nothing runs on a sum that was not completed; every sum is made once; a branch's weights' gradients come
/// after its input's, from an input that was made again.
[[nodiscard]] std::vector<std::string> verify_tensor(const Schedule& schedule, const model::Model& model);

/// The part of `verify` that looks at what passes between pipeline ranks, as far as one list tells: a slot is sent once
/// after it was filled, and filled again after that; it is taken once after it was received, from the same edge.
[[nodiscard]] std::vector<std::string> verify_transfers(const Schedule& schedule, const model::Model& model,
                                                        Complete complete = {});

/// The part of `verify` that follows the memory of gradient shards: nothing touches one that has none, each is
/// allocated and freed once a step, and freed behind its update, of this step or the one before.
[[nodiscard]] std::vector<std::string> verify_gradient_memory(const Schedule& schedule, const model::Model& model);

/// Checks a set of needs against the accesses: every two conflicting accesses of two consecutive steps must be ordered,
/// directly or through others, and every lane must keep its order. Independent of how `needs` finds its edges. Empty:
/// sound.
[[nodiscard]] std::vector<std::string> verify_needs(const Schedule& schedule, const model::Model& model,
                                                    std::span<const Need> edges);

}  // namespace trireme::schedule

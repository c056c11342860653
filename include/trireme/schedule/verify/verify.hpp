// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/schedule/needs.hpp"

namespace trireme::schedule {

/// Properties required of a schedule at some stage of its construction.
struct Complete {
  bool unshard = true;    ///< parameters are gathered before they are read
  bool reduction = true;  ///< every microbatch's gradient is reduced exactly once
  bool update = true;     ///< every block is clipped and updated once
  bool slots = true;      ///< slots are assigned
};

/// Lists everything that is wrong with a schedule, each line with the op (index and text). Empty: sound. Checked:
/// parameters are unsharded when used, freed once and all freed at the end; no slot holds two blocks at once; stages of
/// a microbatch run in order (`verify_order`); a backward follows its forward once; every microbatch's gradient is
/// reduced exactly once, after its last writer, into a shard that is overwritten first and added to later; replicas are
/// summed once, after the last reduce-scatter; the norm sees all gradients; every block is updated once.
[[nodiscard]] std::vector<std::string> verify(const Schedule& schedule, const model::Model& model, int replicas,
                                              Complete complete = {});

/// The part of `verify` that follows every microbatch through the model: the forwards of its stages and blocks run in
/// the model's order, its backwards in the reverse order after all of them, a recompute from its block's first stage to
/// its last, each on the output of the previous op; nothing overwrites tensors between two of them. Microbatches can be
/// interleaved in any order.
[[nodiscard]] std::vector<std::string> verify_order(const Schedule& schedule, const model::Model& model);

/// The part of `verify` for exchanges between stages on the tensor axis: a stage reads tensors gathered for it, and no
/// op reads an incomplete sum; every sum is made once; a branch's weight gradients come after its input gradient, from
/// a rebuilt input.
[[nodiscard]] std::vector<std::string> verify_tensor(const Schedule& schedule, const model::Model& model);

/// The part of `verify` for transfers between pipeline ranks, as far as one list shows: a slot is sent once after it
/// was filled, and filled again after that; it is taken once after it was received, from the same edge.
[[nodiscard]] std::vector<std::string> verify_transfers(const Schedule& schedule, const model::Model& model,
                                                        Complete complete = {});

/// The part of `verify` that follows the memory of gradient shards: every access is to allocated memory; each shard is
/// allocated and freed once a step, and freed after its update, of this step or the previous one.
[[nodiscard]] std::vector<std::string> verify_gradient_memory(const Schedule& schedule, const model::Model& model);

/// Checks a set of needs against the accesses: every two conflicting accesses of
/// two consecutive steps must be ordered, directly or transitively, and every lane
/// must keep its order. Independent of the algorithm of `needs`. Empty: sound.
[[nodiscard]] std::vector<std::string> verify_needs(const Schedule& schedule, const model::Model& model,
                                                    std::span<const Need> edges);

}  // namespace trireme::schedule

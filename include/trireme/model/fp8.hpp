// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/fp8.hpp"
#include "trireme/model/decoder.hpp"

/// Selects the matrix products of a model with 8-bit operands.
namespace trireme::model {

struct Model;

/// precision.fp8 and precision.fp8_skip of the run file.
struct Fp8Choice {
  Fp8 recipe = Fp8::none;
  std::vector<std::string> skip{};  ///< globs over Hugging Face names: these weights' products stay as they are
  friend bool operator==(const Fp8Choice&, const Fp8Choice&) = default;
};

/// The products of a stage that are in fp8, by the role of their weights.
struct Fp8Products {
  Fp8 recipe = Fp8::none;
  std::vector<Role> roles{};

  /// Rounding of the operands of the product with the weight of this role.
  [[nodiscard]] Fp8 of(Role role) const;
};

/// Whether a weight of this role may be in an fp8 product: those of attention, MLP and experts; never those of the
/// embedding, the head and routers.
[[nodiscard]] bool may_be_fp8(Role role);

/// Marks the stages whose products are in fp8. Weights that one product multiplies are taken or skipped together (q, k
/// and v; gate and up), and so is a role in all experts of a layer. Throws ConfigError naming every weight whose held
/// part has a size that is not a multiple of fp8_multiple, and every product of which only a part is skipped.
[[nodiscard]] Model choose_fp8(Model model, const Fp8Choice& choice);

/// Throws ConfigError naming every glob that fits no weight of a whole model, or where all products are skipped. model:
/// of choose_fp8, with all its layers.
void check_fp8_skip(const Model& model, const Fp8Choice& choice);

}  // namespace trireme::model

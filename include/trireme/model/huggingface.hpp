// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "trireme/config/run_config.hpp"

/// How Hugging Face writes each architecture down, as data: what `checkpoint/` reads and writes config.json and weight
/// files by.
namespace trireme::model {

/// A key of config.json that is a whole number.
struct HfSize {
  std::string_view key;
  std::int64_t config::Model::*member;
  bool required = true;
  std::int64_t times_hidden = 0;  ///< what stands for an absent one: so many times the hidden size (0: left to `build`)
};

/// A key with one value that is honoured. Written as it is; any other value is refused, an absent key is accepted.
struct HfFlag {
  std::string_view key;
  bool value;
  std::string_view feature;  ///< what another value would switch on
};

struct HfForm {
  std::string_view architecture;  ///< model.architecture
  std::string_view model_type;    ///< config.json's
  std::string_view class_name;    ///< in its "architectures"
  /// What some files leave out at the beginning of tensor names.
  std::string_view optional_prefix;
  std::string_view embedding;  ///< the parameter that a tied head uses
  std::vector<HfSize> sizes;
  std::string_view norm_eps;
  double norm_eps_default;  ///< transformers' own, where config.json gives none
  bool tied_default;
  bool rotary;                                ///< reads and writes the RoPE keys and max_position_embeddings
  std::string_view activation;                ///< the key
  std::vector<std::string_view> activations;  ///< values that mean the same; the first is written
  std::vector<HfFlag> flags;
  std::vector<std::string_view> dropout;  ///< keys of dropout rates, which play no part: written as 0
  std::vector<std::string_view> buffers;  ///< endings of tensors that hold no parameters
};

/// All of them; the architecture named `architecture`. Throws BugError when there is none.
[[nodiscard]] std::span<const HfForm> hf_forms();
[[nodiscard]] const HfForm& hf_form(std::string_view architecture);

}  // namespace trireme::model

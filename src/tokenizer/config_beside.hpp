// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/hf/added_tokens.hpp"

namespace trireme::tokenizer {

/// Contents of tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder, read as transformers 5
/// does: special_tokens_map.json overrides tokenizer_config.json unless that has added_tokens_decoder.
struct ConfigBeside {
  std::optional<bool> add_bos, add_eos;
  std::optional<bool> split_specials;  ///< split_special_tokens
  std::string bos, eos;                ///< texts of bos_token and eos_token; "": not given
  std::string eos_file;                ///< source of eos_token
  std::string tokenizer_class;
  std::string file;  ///< the path of tokenizer_config.json; "": there is none
  /// Tokens that the files name, without ids, in the order in which transformers adds them: of added_tokens_decoder or
  /// added_tokens.json, the values of bos_token, pad_token and similar keys, of a list extra_special_tokens or
  /// additional_special_tokens.
  std::vector<hf::AddedToken> listed, named, extra;
};

/// Reads the files in the folder of `path`, a tokenizer.json or tokenizer.model. in_file: "added_tokens" of
/// tokenizer.json; null of a SentencePiece model. Throws DataError when one is no JSON object, or a value is of another
/// kind.
[[nodiscard]] ConfigBeside read_config_beside(const std::string& path, const nlohmann::json& in_file);

}  // namespace trireme::tokenizer

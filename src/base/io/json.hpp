// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace trireme::io {

/// Parses JSON of another program. Throws CheckpointError, naming `file`, when it is not JSON, repeats a key of
/// an object (readers would disagree on its value) or nests deeper than any file of weights does.
[[nodiscard]] nlohmann::json parse_json(const std::string& file, std::string_view text);

/// Whether `json` nests deeper than anything that is read: copying such a value, or writing it, would overflow the
/// stack.
[[nodiscard]] bool nests_deep(std::string_view json);

/// `text` as JSON of another program; discarded (no object, no array, no value) if it is none or nests deep.
[[nodiscard]] nlohmann::json parse_or_discard(std::string_view text);

/// `value` as JSON for a message: control characters escaped, long text cut.
[[nodiscard]] std::string shown(const nlohmann::json& value);

/// `text` in quotes for a message: control characters escaped, long text cut.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace trireme::io

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

/// Storage of tokenizers: they are kept with the weights trained on their tokens.
namespace trireme::tokenizer {

/// The files, by name, from which transformers' AutoTokenizer loads the tokenizer `spec`, and from which
/// `spec_in_directory` finds it again; none for "". library: `library_of` where it made the training data; "": here.
/// Throws as `make_tokenizer`.
[[nodiscard]] std::map<std::string, std::string> export_files(const std::string& spec, const std::string& library = "");

/// The `spec` of the tokenizer in a Hugging Face directory: the one recorded by an export, or else its tokenizer.json
/// or its SentencePiece model; "" when there is none.
[[nodiscard]] std::string spec_in_directory(const std::string& directory);

/// `spec` with an absolute path: the same tokenizer from any working directory.
[[nodiscard]] std::string absolute_spec(const std::string& spec);

/// The file of `spec`, whose path may be that of its folder; "" of "bytes". Throws DataError when the folder holds
/// none, or when it is neither a file nor a folder.
[[nodiscard]] std::string path_of_spec(const std::string& spec);

/// Throws ConfigError for an unknown `spec`, with the probably intended one.
[[noreturn]] void unknown_spec(const std::string& spec);

/// Tokenizer::definition of `spec`; "" when it has no files. Throws as `make_tokenizer`.
[[nodiscard]] std::string fingerprint(const std::string& spec);

/// Whether the files of `spec` still produce the ids of the fingerprint `saved`; for fingerprints of earlier builds,
/// with 16 digits, whether its main file is the same. Throws as `make_tokenizer`.
[[nodiscard]] bool has_fingerprint(const std::string& spec, const std::string& saved);

/// Tokenizer library versions that a Hugging Face directory records (`library_of`); "" where it records none.
[[nodiscard]] std::string library_in_directory(const std::string& directory);

}  // namespace trireme::tokenizer

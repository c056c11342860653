// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

/// Multimodal models whose text part is a model of a family: the additions of transformers' ...ForConditionalGeneration
/// in config.json and in the names of tensors. Pictures and sound are not read; for text alone the text part is the
/// whole model, including M-RoPE, whose three positions are equal then.
namespace trireme::model {

/// A number that a class in transformers takes where its table lacks the key.
struct AbsentNumber {
  std::string_view key;
  double value;
};

/// A supported text_config: its model_type, and the one of the family that computes the same.
struct TextType {
  std::string_view model_type;
  std::string_view family_type;            ///< model_type of an Architecture
  std::vector<AbsentNumber> absent;        ///< in addition to those of the family's keys
  bool mrope = false;                      ///< its RoPE has sections of positions, all equal in text
  std::vector<std::string_view> unread{};  ///< keys of the family that its class does not read
};

/// Tensors whose names begin with `in_files` are those of the text model that begin with `own`.
struct TextPrefix {
  std::string_view in_files, own;
};

struct Multimodal {
  std::string_view model_type;  ///< config.json's
  std::string_view class_name;  ///< in its "architectures"
  std::string_view text_type;   ///< model_type of a text_config that has none
  bool any_text = false;        ///< text_config may be of any family; else of text_type only
  bool tied_absent = false;     ///< tie_word_embeddings where neither table has it
  bool text_may_tie = false;    ///< tie_word_embeddings of text_config counts even if the outer one is false
  bool flat = false;            ///< without text_config its keys are in the outer table
  std::vector<TextPrefix> names;
  std::vector<std::string_view> aside;  ///< beginnings of tensors that are not of the text
};

/// All multimodal types. The one of this model_type, or null.
[[nodiscard]] std::span<const Multimodal> multimodals();
[[nodiscard]] const Multimodal* multimodal(std::string_view model_type);

/// The text_config of this model_type, or null; every family is its own.
[[nodiscard]] const TextType* text_type(std::string_view model_type);

}  // namespace trireme::model

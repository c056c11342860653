// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/tokenizer/tokenizer.hpp"
#include "trireme/train/engine/job.hpp"

/// Multiple choice as EleutherAI's lm-evaluation-harness scores it (lm_eval/api/task.py, api/model.py): which ending
/// does the model find likeliest after its context?
namespace trireme::cli {

struct Question {
  std::string context;
  std::vector<std::string> endings;
  std::size_t label = 0;  ///< index of the right ending
};

/// JSON lines with the texts `context` (or `ctx`, as in HellaSwag's files) and `endings`, and `label`, a number or its
/// text. `name` identifies the file in messages. Throws DataError with the line.
[[nodiscard]] std::vector<Question> parse_questions(std::string_view text, const std::string& name);
/// The same of a file.
[[nodiscard]] std::vector<Question> read_questions(const std::string& path);

/// A context followed by an ending, as tokens.
struct Choice {
  std::vector<std::int32_t> ids;
  std::size_t context = 0;  ///< tokens before the ending
};
/// The tokens of `context`, a blank and `ending`: those after the tokens of `context` alone are the ending's. Where
/// there are none, as the ending merges into the context's last token, the tokens of `context` and of the ending
/// encoded separately. At most `longest` + 1 are kept, the last ones.
[[nodiscard]] Choice choice_of(const tokenizer::Tokenizer& tokenizer, const std::string& context,
                               const std::string& ending, std::size_t longest);

/// Whether the likeliest ending is the right one, and the one whose log-likelihood over its length in characters is
/// highest. The first of equal ones counts.
struct Picked {
  bool right = false, right_norm = false;
};
[[nodiscard]] Picked pick(const Question& question, std::span<const double> log_likelihoods);

/// The choices of all endings of all questions, in order. name: of the file, in messages. Throws DataError naming the
/// question.
[[nodiscard]] std::vector<Choice> choices_of(const tokenizer::Tokenizer& tokenizer,
                                             const std::vector<Question>& questions, std::size_t longest,
                                             const std::string& name);

/// A file of questions, ready to be scored.
struct ChoiceFile {
  std::string path;
  std::vector<Question> questions;
  std::vector<Choice> choices;  ///< of all endings
};

/// "choices=FILE questions=N accuracy=... accuracy_norm=..." with their standard errors. progress: called with the
/// choices that are scored so far. Collective. Throws NumericsError, on every rank, where a log-likelihood is not
/// finite.
[[nodiscard]] std::string evaluate_choices(train::Job& job, const ChoiceFile& file,
                                           const std::function<void(std::size_t)>& progress);

}  // namespace trireme::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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
/// text. `name` stands for the file in messages. Throws DataError naming the line.
[[nodiscard]] std::vector<Question> parse_questions(std::string_view text, const std::string& name);
/// The same of a file.
[[nodiscard]] std::vector<Question> read_questions(const std::string& path);

/// A context followed by an ending, as tokens.
struct Choice {
  std::vector<std::int32_t> ids;
  std::size_t context = 0;  ///< tokens before the ending
};
/// The tokens of `context`, a blank and `ending`: those behind the tokens of `context` alone are the ending's. At most
/// `longest` + 1 are kept, the last ones.
[[nodiscard]] Choice choice_of(const tokenizer::Tokenizer& tokenizer, const std::string& context,
                               const std::string& ending, std::size_t longest);

/// Whether the likeliest ending is the right one, and the one whose log-likelihood over its length in characters is
/// highest. The first of equal ones counts.
struct Picked {
  bool right = false, right_norm = false;
};
[[nodiscard]] Picked pick(const Question& question, std::span<const double> log_likelihoods);

/// "choices=FILE questions=N accuracy=... accuracy_norm=..." with their standard errors. Collective.
[[nodiscard]] std::string evaluate_choices(train::Job& job, const std::string& path,
                                           const std::vector<Question>& questions,
                                           const tokenizer::Tokenizer& tokenizer);

}  // namespace trireme::cli

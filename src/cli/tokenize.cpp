// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/tokenize.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.hpp"

namespace trireme::cli {
namespace {

struct TokenizeArguments {
  std::string tokenizer;
  std::string output;
  std::vector<std::string> inputs;
};

int tokenize(const TokenizeArguments& arguments) {
  const auto tokenizer = tokenizer::make_tokenizer(arguments.tokenizer);
  const data::TokenizeCounts counts = data::tokenize_files(*tokenizer, arguments.inputs, arguments.output);
  fmt::print("{}: {} {} tokens of {} document{} ({} bytes of text); model.vocab_size must be at least {}\n",
             counts.tokens_path, counts.tokens, data::to_text(counts.type), counts.documents,
             counts.documents == 1 ? "" : "s", counts.text_bytes, tokenizer->vocab_size());
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Action& chosen) {
  const auto arguments = std::make_shared<TokenizeArguments>();
  CLI::App* command = app.add_subcommand("tokenize", "Make a token file from text files, each of them one document.");
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "bytes, spm:MODEL (a SentencePiece model) or hf:FILE (a tokenizer.json of Hugging Face)")
      ->required();
  command
      ->add_option("-o,--output", arguments->output,
                   "The token file: Megatron .bin/.idx when it ends in .idx, else raw uint16 or uint32")
      ->required();
  command->add_option("FILE", arguments->inputs, "Text files")->required();
  command->footer(
      "The file appears when it is complete. data.train of a run file takes it as it is.\n\n"
      "Examples:\n"
      "  trireme tokenize --tokenizer bytes -o runs/data/book.bin book.txt         ids 0 to 255, 256 ends a document\n"
      "  trireme tokenize --tokenizer hf:Llama-3.2-1B/tokenizer.json -o data/web.idx web-*.txt       Megatron "
      ".bin/.idx\n"
      "  trireme tokenize --tokenizer spm:tokenizer.model -o data/web.bin web-*.txt       a SentencePiece model");
  command->callback([&chosen, arguments] { chosen = [arguments] { return tokenize(*arguments); }; });
}

}  // namespace trireme::cli

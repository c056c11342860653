// SPDX-License-Identifier: Apache-2.0
//
// trireme chat: a conversation with a model, on a terminal or through a pipe.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/inference/chat_template.hpp"
#include "cli/inference/end_tokens.hpp"
#include "cli/inference/inference.hpp"
#include "cli/inference/streamed_text.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/libraries.hpp"
#include "cli/start/numbers.hpp"
#include "cli/start/standard_streams.hpp"
#include "cli/start/with_mpi.hpp"
#include "data/text/conversation.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/tokenizer/files.hpp"
#include "trireme/train/engine/generate.hpp"

namespace trireme::cli {
namespace {

constexpr std::int64_t usual_context = 4096;

struct ChatArguments {
  ModelArguments model;
  std::string system;
  bool has_system = false;
  std::string chat;  ///< the format; "": of the model's chat template
  std::int64_t tokens = 1024;
  std::int64_t context = 0;
  train::Sampling sampling{.temperature = 0.7};
};

/// Reports progress to the ranks that wait, while the first rank reads a message of the user.
class WhileUserWrites {
 public:
  explicit WhileUserWrites(std::function<void()> report)
      : thread_([this, report = std::move(report)] {
          constexpr std::chrono::seconds pause{60};  // a collective may take ten minutes
          std::unique_lock lock(mutex_);
          while (!ended_.wait_for(lock, pause, [&] { return done_; })) report();
        }) {}
  WhileUserWrites(const WhileUserWrites&) = delete;
  WhileUserWrites& operator=(const WhileUserWrites&) = delete;
  ~WhileUserWrites() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

/// The next line of standard input, on every rank; none at its end. Collective over `world`.
std::optional<std::string> read_message(const mpi::Communicator& world) {
  mpi::Progress waiting;
  if (world.size() > 1)
    waiting.watch = [](std::function<void()> report) -> std::shared_ptr<void> {
      return std::make_shared<WhileUserWrites>(std::move(report));
    };
  const std::string read = mpi::on_first_rank(
      world, "read a message",
      [] {
        if (::isatty(STDIN_FILENO) != 0) {
          fmt::print("> ");
          flush_standard_output();
        }
        std::string line;
        return std::getline(std::cin, line) ? "+" + line : std::string("-");
      },
      waiting);
  if (read == "-") return std::nullopt;
  return std::string(trim(std::string_view(read).substr(1)));
}

/// The format of --chat, else of the chat template in the tokenizer's folder.
ChatTemplate chat_template_of(const ChatArguments& arguments, const checkpoint::Weights& weights, bool warns) {
  const std::string spec = arguments.model.tokenizer.empty() ? weights.tokenizer() : arguments.model.tokenizer;
  const std::string text = spec == "bytes" ? "" : chat_template_beside(tokenizer::path_of_spec(spec));
  ChatTemplate format = read_chat_template(text);
  if (!arguments.chat.empty()) {
    if (warns && !format.chat.empty() && format.chat != arguments.chat)
      log::warning(fmt::format("--chat {}, but the chat template of {} is {}", arguments.chat, arguments.model.model,
                               format.chat));
    if (format.chat != arguments.chat) format = {};
    format.chat = arguments.chat;
  }
  if (format.chat.empty())
    throw ConfigError(fmt::format(
        "{}: {}; give --chat chatml or llama3, the format that it was trained with, or continue text with trireme "
        "generate",
        arguments.model.model,
        text.empty() ? "there is no chat template with its tokenizer (chat_template.jinja, or chat_template in "
                       "tokenizer_config.json)"
                     : "its chat template is neither of ChatML nor of Llama 3"));
  if (warns && format.writes_dates)
    log::warning(
        fmt::format("{}: its chat template writes dates into the system message, which are left out; give "
                    "them with --system",
                    arguments.model.model));
  return format;
}

config::RunConfig chat_config(const ChatArguments& arguments, const checkpoint::Weights& weights,
                              const mpi::Communicator& world) {
  config::RunConfig config = text_config(arguments.model, world.size());
  const std::int64_t longest = weights.generation().max_position_embeddings;
  const std::int64_t usual = longest > 0 ? std::min(longest, usual_context) : usual_context;
  if (longest > 0 && arguments.context > longest)
    throw ConfigError(fmt::format("--context {}: the model was trained on at most {} tokens (max_position_embeddings)",
                                  arguments.context, longest));
  config.data.seq_len = arguments.context > 0 ? arguments.context : usual;
  return checkpoint::complete_model(config, world);
}

class Chat {
 public:
  Chat(const ChatArguments& arguments, const tokenizer::Tokenizer& tokenizer, train::Job& job,
       std::set<std::int32_t> ends, Conversation conversation, bool prints)
      : arguments_(arguments),
        tokenizer_(tokenizer),
        job_(job),
        ends_(std::move(ends)),
        conversation_(std::move(conversation)),
        prints_(prints) {}

  void reset() {
    conversation_.clear();
    note("the conversation is empty");
  }

  /// Prints the reply to a message and remembers both. Collective.
  void answer(std::string message) {
    conversation_.ask(std::move(message));
    const std::int64_t context = job_.config().data.seq_len;
    const std::int64_t room = std::max<std::int64_t>(1, std::min(arguments_.tokens, context / 4));
    const auto tokens = [&](const std::string& text) {
      return static_cast<std::int64_t>(prompt_ids(tokenizer_, text).size());
    };
    if (const std::size_t removed = conversation_.shorten(tokens, context - room); removed > 0)
      note(fmt::format("the context of {} tokens is full: the oldest {} left out", context,
                       removed == 1 ? "question is" : fmt::format("{} questions are", removed)));
    const std::vector<std::int32_t> prompt = prompt_ids(tokenizer_, conversation_.prompt());
    const std::int64_t left = context - static_cast<std::int64_t>(prompt.size());
    if (left < 1) {
      conversation_.take_back();
      note(
          fmt::format("the message has {} tokens with the system message, more than the context of {}; it is left "
                      "out: give a shorter one, or a larger --context",
                      prompt.size(), context));
      return;
    }
    generate(prompt, std::min(left, arguments_.tokens));
  }

 private:
  void generate(const std::vector<std::int32_t>& prompt, std::int64_t most) {
    StreamedText text(tokenizer_, {}, {});  // without the prompt
    train::TextLogits model(job_, true);
    train::Sampling sampling = arguments_.sampling;
    sampling.seed += replies_++;  // another reply to the same question
    std::string reply;
    bool ended = false;
    std::int64_t count = 0;
    const auto show = [&](const std::string& piece) {
      reply += piece;
      if (!prints_ || piece.empty()) return;
      fmt::print("{}", piece);
      flush_standard_output();
    };
    train::generate(model, prompt, most, tokenizer_.document_end(), sampling, [&](std::int32_t token) {
      ended = ends_.contains(token);
      if (!ended) {
        show(text.add(token));
        ++count;
      }
      return !ended;
    });
    show(text.rest());
    if (prints_) {
      fmt::print("\n");
      flush_standard_output();
    }
    if (!ended && count == most)
      note(fmt::format("the reply ends at {} tokens ({})", most, most < arguments_.tokens ? "--context" : "--tokens"));
    conversation_.reply(reply);
  }

  void note(const std::string& text) const {
    if (prints_) fmt::print(stderr, "[{}]\n", text);
  }

  const ChatArguments& arguments_;
  const tokenizer::Tokenizer& tokenizer_;
  train::Job& job_;
  std::set<std::int32_t> ends_;
  Conversation conversation_;
  bool prints_;
  std::uint64_t replies_ = 0;
};

int chat(const mpi::Communicator& world, const ChatArguments& arguments) {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::optional<checkpoint::Weights> weights;
  ChatTemplate format;
  std::set<std::int32_t> ends;
  const bool first = world.rank() == 0;
  mpi::collective_try(world, "open the model", [&] {
    weights.emplace(open_weights(arguments.model, first));
    tokenizer = open_tokenizer(arguments.model, *weights, first);
    format = chat_template_of(arguments, *weights, first);
    (void)data::text::check_chat(format.chat, *tokenizer);
    ends = end_tokens(*tokenizer, weights->generation().eos_token_ids, {});
    ends.insert(tokenizer->encode(data::text::reply_end(format.chat)).front());  // one token: check_chat
  });
  const Libraries libraries(world, 0);
  const config::RunConfig config = chat_config(arguments, *weights, world);
  weights.reset();
  const std::unique_ptr<train::Job> job = open_model(config, world);
  require_cache_memory(*job, world);
  const std::string system = arguments.has_system ? arguments.system : format.system;
  Chat conversation(arguments, *tokenizer, *job, std::move(ends), Conversation(format, system), first);
  if (first)
    fmt::print(stderr, "[{}, context of {} tokens{}; /reset forgets, /exit ends]\n", format.chat, config.data.seq_len,
               system.empty() ? "" : ", system message: " + printable(system));
  while (const std::optional<std::string> message = read_message(world)) {
    if (*message == "/exit") break;
    if (*message == "/reset")
      conversation.reset();
    else if (!message->empty())
      conversation.answer(*message);
  }
  return 0;
}

}  // namespace

void add_chat(CLI::App& app, Action& chosen) {
  const auto a = std::make_shared<ChatArguments>();
  CLI::App* command = add_command(app, "chat");
  add_model_options(*command, a->model, "of the conversation");
  CLI::Option* system = command->add_option(
      "--system", a->system, "System message; \"\" for none; default: that of the chat template, if any");
  command
      ->add_option("--chat", a->chat,
                   "Format of the messages: chatml or llama3; default: that of the model's chat template")
      ->check(CLI::IsMember({"chatml", "llama3"}));
  command->add_option("--tokens", a->tokens, "Maximum number of tokens of a reply")
      ->check(whole_number(1, 1 << 30))
      ->capture_default_str();
  command
      ->add_option("--context", a->context,
                   "Tokens of the conversation that the model sees; default: the model's, at most 4096")
      ->check(whole_number(16, 1 << 24));
  command
      ->add_option("--temperature", a->sampling.temperature,
                   "0: always the most likely token; 1: as the model predicts")
      ->check(real_number(0, 1e6))
      ->capture_default_str();
  command->add_option("--top-k", a->sampling.top_k, "Only the k most likely tokens; 0: all")
      ->check(whole_number(0, std::numeric_limits<int>::max()))
      ->capture_default_str();
  command->add_option("--top-p", a->sampling.top_p, "Only the most likely tokens that together have this probability")
      ->check(real_number(0, 1))
      ->capture_default_str();
  command->add_option("--seed", a->sampling.seed, "Random seed of the sampling")->capture_default_str();
  command->footer(
      "Reads one message a line from standard input and prints each reply as it comes, up to the end of the turn. "
      "/reset forgets the conversation; /exit or the end of the input ends it.\n"
      "The oldest questions are left out, with a note, where the context is full.\n"
      "Chat templates are not run: the marks of ChatML (Qwen, SmolLM) or Llama 3 are recognized in them, a fixed "
      "system "
      "message is taken, and Llama 3.1's dates are left out. Under mpirun the model is tensor-parallel.\n\n"
      "Examples:\n"
      "  trireme chat Qwen2.5-0.5B-Instruct --system \"Answer in one sentence.\"\n"
      "  trireme chat Llama-3.2-1B-Instruct --temperature 0 < questions.txt");
  command->callback([&chosen, a, system] {
    a->has_system = system->count() > 0;
    chosen = [a] { return with_mpi([&](const mpi::Communicator& world) { return chat(world, *a); }); };
  });
}

}  // namespace trireme::cli

// SPDX-License-Identifier: Apache-2.0
// The sections [data] and [batch].
#include <algorithm>

#include "config/section.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/config/text_source.hpp"
#include "trireme/config/validation_sets.hpp"

namespace trireme::config {

namespace {

constexpr double largest_sample = 0x1p53;  // a mix of sources weighs samples in doubles

Expected read_source(const Value& value, TokenSource& source) {
  if (Expected expected = read_path(value, source.path)) return expected;
  if (source.path.empty()) return "a path that is not empty";
  if (!names_text(source.path))
    return source.path.find_first_of("*?") == std::string::npos
               ? std::nullopt
               : Expected("the path of one token file: wildcards are not expanded, list the files");
  if (const auto text = parse_text_source(source.path); std::holds_alternative<std::string>(text))
    return std::get<std::string>(text);
  return std::nullopt;
}

/// A source without a weight.
Expected read_file(const Value& value, TokenSource& source) {
  if (Expected expected = read_source(value, source)) return expected;
  const MixOptions mix = mix_options_of(source.path);
  if (mix.epochs > 0 || mix.temperature > 0)
    return "a path alone: epochs and temperature need { path, weight } in data.train";
  return std::nullopt;
}

/// epochs and temperature of a source, which follow its path.
Expected read_mix_option(const std::string& key, const Value& value, std::vector<std::string>& options) {
  double number = 0;
  const Limits limits = key == "epochs" ? between(1e-6, 1e9) : between(0.01, 1e6);
  if (Expected expected = read(value, number, limits)) return expected;
  options.push_back(key + "=" + *print(number));
  return std::nullopt;
}

/// { path = "a.bin", weight = 0.7, epochs = 4 }
Expected read_weighted_file(const Fields& fields, TokenSource& source) {
  bool has_path = false;
  bool has_weight = false;
  std::vector<std::string> options;
  for (const auto& [key, value] : fields) {
    Expected expected = "only path, weight, epochs and temperature";
    if (key == "path") {
      expected = read_source(value, source);
      has_path = true;
    } else if (key == "weight") {
      expected = read(value, source.weight, between(1e-9, 1e9));
      has_weight = true;
    } else if (key == "epochs" || key == "temperature") {
      expected = read_mix_option(key, value, options);
      has_weight = has_weight || key == "temperature";
    }
    if (expected) return key + " = " + describe(value) + " where it takes " + *expected;
  }
  if (!has_path) return "path is missing";
  if (!has_weight && mix_options_of(source.path).temperature == 0) return "weight is missing, or temperature";
  for (const std::string& option : options) source.path = with_option(source.path, option);
  return std::nullopt;
}

constexpr const char* train_form =
    "a path, a list of paths, or a list of { path = \"...\", weight = ..., epochs = ..., temperature = ... }";

/// A path or a list of paths; `form` describes the allowed values of the key.
Expected read_files(const Value& value, std::vector<TokenSource>& target, const std::string& form) {
  std::vector<TokenSource> sources;
  if (std::holds_alternative<std::string>(value.data)) {
    if (Expected expected = read_file(value, sources.emplace_back())) return expected;
  } else if (const auto* list = std::get_if<List>(&value.data)) {
    for (const Value& element : *list)
      if (Expected expected = read_file(element, sources.emplace_back()))
        return form + "; " + describe(element) + " where it takes " + *expected;
  }
  if (sources.empty()) return form;
  target = std::move(sources);
  return std::nullopt;
}

Expected read_weighted_files(const List& list, std::vector<TokenSource>& target) {
  std::vector<TokenSource> sources;
  for (const Value& element : list) {
    const auto* fields = std::get_if<Fields>(&element.data);
    if (fields == nullptr) return std::string(train_form) + "; weights for all files or for none";
    if (Expected expected = read_weighted_file(*fields, sources.emplace_back()))
      return std::string(train_form) + "; " + *expected;
  }
  target = std::move(sources);
  return std::nullopt;
}

/// If the first element has a weight, all must have one; otherwise none.
Expected read_train(const Value& value, Data& data) {
  const auto* list = std::get_if<List>(&value.data);
  data.weighted = list != nullptr && !list->empty() && std::holds_alternative<Fields>(list->front().data);
  return data.weighted ? read_weighted_files(*list, data.train) : read_files(value, data.train, train_form);
}

constexpr const char* validation_form =
    "a path, a list of paths, or a table of named sets such as { web = \"web.bin\", code = [\"c.bin\", \"go.bin\"] }";

/// A name becomes part of the names of metrics.
bool names_a_set(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
  });
}

Expected read_validation(const Value& value, std::vector<TokenSource>& target) {
  const auto* sets = std::get_if<Fields>(&value.data);
  if (sets == nullptr) return read_files(value, target, validation_form);
  std::vector<TokenSource> files;
  for (const auto& [name, of_set] : *sets) {
    if (!names_a_set(name))
      return std::string(validation_form) + "; the name \"" + name + "\" where it takes letters, digits, _ and -";
    std::vector<TokenSource> sources;
    if (Expected expected = read_files(of_set, sources, "a path or a list of paths"))
      return std::string(validation_form) + "; " + name + " = " + describe(of_set) + " where it takes " + *expected;
    for (TokenSource& source : sources) {
      source.set = name;
      files.push_back(std::move(source));
    }
  }
  if (files.empty()) return validation_form;
  target = std::move(files);
  return std::nullopt;
}

constexpr const char* choices_form =
    "a file of JSON lines, a list of such files, or a table of named sets such as { hellaswag = \"hellaswag.jsonl\" }";

Expected read_question_files(const Value& value, const std::string& set, std::vector<TokenSource>& target) {
  std::vector<Value> paths;
  if (const auto* list = std::get_if<List>(&value.data))
    paths = *list;
  else
    paths = {value};
  for (const Value& path : paths) {
    TokenSource source{.path = {}, .set = set};
    if (Expected expected = read_path(path, source.path)) return choices_form;
    if (source.path.empty() || source.path.find_first_of("*?#") != std::string::npos || source.path.ends_with('/'))
      return std::string(choices_form) + "; " + describe(path) + " where it takes the path of one file";
    target.push_back(std::move(source));
  }
  return paths.empty() ? Expected(choices_form) : std::nullopt;
}

Expected read_choices(const Value& value, std::vector<TokenSource>& target) {
  std::vector<TokenSource> files;
  const auto* sets = std::get_if<Fields>(&value.data);
  if (sets == nullptr) {
    if (Expected expected = read_question_files(value, "", files)) return expected;
  } else {
    for (const auto& [name, of_set] : *sets) {
      if (!names_a_set(name))
        return std::string(choices_form) + "; the name \"" + name + "\" where it takes letters, digits, _ and -";
      if (Expected expected = read_question_files(of_set, name, files)) return expected;
    }
  }
  if (files.empty()) return choices_form;
  target = std::move(files);
  return std::nullopt;
}

Printed print_files(const std::vector<TokenSource>& sources, bool weighted) {
  std::vector<std::string> texts;
  for (const TokenSource& source : sources) {
    const std::string path = *print_path(source.path);
    texts.push_back(weighted ? "{ path = " + path + ", weight = " + *print(source.weight) + " }" : path);
  }
  if (texts.empty()) return std::nullopt;
  return "[" + join(texts, ", ") + "]";
}

Printed print_sets(const std::vector<TokenSource>& files) {
  const std::vector<std::string> names = set_names(files);
  if (names.size() < 2 && (names.empty() || names.front().empty())) return print_files(files, false);
  std::vector<std::string> texts;
  for (const std::string& name : names) texts.push_back(name + " = " + *print_files(files_of_set(files, name), false));
  return "{ " + join(texts, ", ") + " }";
}

}  // namespace

std::vector<Option> data_options() {
  Section<Data> s("data", &RunConfig::data);
  s.custom(
       "train", "paths", read_train, [](const Data& data) { return print_files(data.train, data.weighted); },
       "token files or text: a path, a list of paths (concatenated), or a list of { path, weight, epochs, temperature "
       "} "
       "(mixed); text: .jsonl or .txt (.gz, .zst), DIR/ or a pattern, with options as in "
       "\"web/*.jsonl#field=content\"")
      .required();
  s.custom(
       "validation", "paths", [](const Value& value, Data& data) { return read_validation(value, data.validation); },
       [](const Data& data) { return print_sets(data.validation); },
       "token files or text for evaluation: a path, a list of paths, or a table of named sets, each with its own loss")
      .default_is("none");
  s.custom(
       "choices", "paths", [](const Value& value, Data& data) { return read_choices(value, data.choices); },
       [](const Data& data) { return print_sets(data.choices); },
       "multiple-choice questions, JSON lines with context, endings and label: a path, a list of paths, or a table of "
       "named sets; scored with data.tokenizer at evaluations")
      .default_is("none");
  s.choice(
      "format", &Data::format,
      "format of the token files; auto: Megatron if there is an .idx file, llm.c by its header, else the sidecar's "
      "or uint16 or uint32 by vocab_size and a sample of the file");
  s.size("seq_len", &Data::seq_len, largest_length, "sequence length in tokens").required();
  s.flag("shuffle", &Data::shuffle, "shuffle the samples, with a new permutation each epoch");
  s.number("seed", &Data::seed, at_least(0), "random seed of the permutation").default_is("run.seed");
  s.number("ignore_targets", &Data::ignore_targets, between(0, 0x7fffffff), "token ids excluded from the loss");
  s.number("document_end", &Data::document_end, between(0, 0x7fffffff),
           "token id that ends a document; stored in exports")
      .default_is("the tokenizer's");
  s.flag("document_mask", &Data::document_mask,
         "mask attention across documents, whose ends are read from the sidecar or the Megatron index of a token file, "
         "else known by data.document_end; position ids are not reset");
  s.choice("packing", &Data::packing,
           "concatenate: documents end to end, cut where a sequence ends; best_fit: documents of at most seq_len + 1 "
           "tokens are not cut, the rest of a sequence is padding; sets document_mask, and needs a sidecar or a "
           "Megatron index");
  s.path("tokenizer", &Data::tokenizer, "tokenizer of the token files: bytes, spm:PATH or hf:PATH; stored in exports")
      .default_is("none");
  s.flag("check_tokenizer", &Data::check_tokenizer,
         "refuse token files whose sidecar has another tokenizer than data.tokenizer");
  s.number("skip_to", &Data::skip_to, between(0, largest_sample), "skip to this sample of the data order")
      .default_is("none");
  s.number("prefetch_batches", &Data::prefetch_batches, between(1, 4096), "number of batches to prefetch");
  return s.take();
}

std::vector<Option> batch_options() {
  Section<Batch> s("batch", &RunConfig::batch);
  s.size("global", &Batch::global, 1 << 30,
         "global batch size in sequences: accumulation x micro x data-parallel ranks")
      .required();
  s.size("micro", &Batch::micro, 1 << 30, "microbatch size of one rank, in sequences").required();
  return s.take();
}

}  // namespace trireme::config

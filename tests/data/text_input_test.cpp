// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "data/files.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/token_file.hpp"
#include "trireme/data/tokenize.hpp"

namespace trireme::data::text_input_test {
namespace {

using test::error_of;
using test::expect_parts;
using test::TemporaryDirectory;
using test::write_file;

std::string gzip(const std::string& bytes) {
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&state, bytes.size()) + 32, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  state.avail_in = static_cast<uInt>(bytes.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

std::string zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

/// Text of a raw or Megatron file of byte tokens, with a bar for the end of a document.
std::string text_of(const std::string& path) {
  const TokenFile file(path, config::TokenFormat::automatic, 257);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
  file.read(0, tokens);
  std::string text;
  for (const std::int32_t token : tokens) text += token == 256 ? '|' : static_cast<char>(token);
  return text;
}

class TextInput : public testing::Test {
 protected:
  TokenizeCounts tokenize(const std::vector<std::string>& inputs, const TokenizeOptions& options = {}) const {
    return tokenize_files(*tokenizer::make_tokenizer("bytes"), inputs, out_, options);
  }
  std::string refusal(const std::string& bytes, const TokenizeOptions& options = {}) const {
    write_file(dir_ / "in", bytes);
    return error_of(ExitCode::data, [&] { (void)tokenize({dir_ / "in"}, options); });
  }
  static TokenizeOptions field(const std::string& name) {
    TokenizeOptions options;
    options.field = name;
    return options;
  }
  TemporaryDirectory dir_;
  std::string out_ = dir_ / "out.bin";
};

TEST_F(TextInput, TakesOneDocumentFromEveryJsonLine) {
  write_file(dir_ / "a.jsonl",
             "{\"text\": \"o\\u00e9\\n\", \"id\": 1}\r\n\n{\"id\": 2, \"text\": \"\"}\n{\"text\": \"two\"}");
  const TokenizeCounts counts = tokenize({dir_ / "a.jsonl"}, field("text"));
  EXPECT_EQ(text_of(out_), "o\xc3\xa9\n|two|");
  EXPECT_EQ(counts.documents, 2);
  EXPECT_EQ(counts.empty_documents, 1);
  EXPECT_EQ(counts.text_bytes, 7);
  EXPECT_EQ(counts.longest_document, 5);
  EXPECT_EQ(counts.distinct_ids, 7);  // o, two bytes, line end, t, w, 256
}

TEST_F(TextInput, TakesFieldsOfNestedObjectsByDots) {
  write_file(dir_ / "a.jsonl", R"({"message": {"content": {"text": "one"}}})"
                               "\n"
                               R"({"message.content": {"text": "two"}, "message": {}})"
                               "\n");
  tokenize({dir_ / "a.jsonl"}, field("message.content.text"));
  EXPECT_EQ(text_of(out_), "one|two|");
  write_file(dir_ / "b.jsonl", R"({"a.b": "a key with a dot", "a": {"b": "nested"}})"
                               "\n");
  tokenize({dir_ / "b.jsonl"}, field("a.b"));
  EXPECT_EQ(text_of(out_), "a key with a dot|") << "the key itself comes first";
  expect_parts(refusal(R"({"message": {"content": "one", "n": 1}, "id": "x"})", field("message.body")),
               {"no field \"message.body\"", "name one of its text fields: id, message.content"});
}

TEST_F(TextInput, RefusesLinesByTheirNumber) {
  expect_parts(refusal("{\"text\": \"a\"}\n\n{\"body\": \"b\", \"n\": 1}\n", field("text")),
               {"in, line 3", "no field \"text\"", "name one of its text fields: body"});
  expect_parts(refusal("{\"text\": 7}", field("text")), {"line 1", "\"text\" is a number, not a text"});
  expect_parts(refusal("{\"text\": [\"a\"]}", field("text")), {"line 1", "is an array, not a text"});
  expect_parts(refusal("{\"id\": 7}", field("text")), {"line 1", "no field of the line is a text"});
  expect_parts(refusal("{\"text\": \"a\"}\nplain\n", field("text")),
               {"line 2", "not a JSON object", "leave --field out"});
  expect_parts(refusal("{\"text\": \"\xff\"}", field("text")), {"line 1", "not UTF-8", "iconv"});
  expect_parts(refusal("{\"text\": \"a\"}\n{\"text\": \"a\",}\n", field("text")), {"line 2", "mistake at byte 14"});
  expect_parts(refusal("{\n  \"text\": \"a\"\n}\n", field("text")),
               {"line 1", "does not end on its line", "jq -c . FILE"});
  expect_parts(refusal("[{\"text\": \"a\"},\n{\"text\": \"b\"}]\n", field("text")),
               {"line 1", "a JSON list", "jq -c '.[]'"});
  expect_parts(refusal("PAR1 and bytes", field("text")),
               {"a Parquet table", "python3 -c", "pandas.read_parquet('FILE'", "--field text"});
  expect_parts(refusal("{\"text\": \"a\"}\n{\"text\": \"b\"}\n"), {"JSON lines", "--field text"});
}

TEST_F(TextInput, DecompressesGzipAndZstdWithSeveralMembers) {
  std::string long_text;
  for (int i = 0; i < 60'000; ++i) long_text += std::to_string(i * 7919) + "\n";
  write_file(dir_ / "a.gz", gzip("one ") + gzip("two"));
  write_file(dir_ / "b.zst", zstd("three ") + zstd("four"));
  write_file(dir_ / "c.gz", gzip(long_text));
  write_file(dir_ / "d.zst", zstd(long_text));
  tokenize({dir_ / "a.gz", dir_ / "b.zst", dir_ / "c.gz", dir_ / "d.zst"});
  EXPECT_EQ(text_of(out_), "one two|three four|" + long_text + "|" + long_text + "|");
}

TEST_F(TextInput, RefusesCompressedFilesThatAreCutOrDamaged) {
  for (const bool by_gzip : {true, false}) {
    std::string whole = by_gzip ? gzip(std::string(10'000, 'a') + "b") : zstd(std::string(10'000, 'a') + "b");
    expect_parts(refusal(whole.substr(0, whole.size() - 5)), {"ends in the middle of its compressed data"});
    for (std::size_t i = 6; i < whole.size(); ++i) whole[i] = static_cast<char>(whole[i] ^ 0x5A);
    expect_parts(refusal(whole), {"damaged"});
  }
}

TEST_F(TextInput, TakesWhatPythonWritesAndJsonDoesNotHave) {
  write_file(dir_ / "in.jsonl",
             "{\"t\": \"a\\ud800b\", \"k\\udfff\": \"\\ud83d\"}\n{\"t\": \"\\ud83d\\ude00\\\\ud800\", \"x\": NaN}\n"
             "{\"x\": [-Infinity, Infinity, 1e400, -1e999, 1E5], \"t\": \"NaN \\ude00\\ud83d\"}\n");
  tokenize({dir_ / "in.jsonl"}, field("t"));
  EXPECT_EQ(text_of(out_), "a\ufffdb|\U0001f600\\ud800|NaN \ufffd\ufffd|");
  expect_parts(refusal("{\"t\": NaN}", field("t")), {"line 1", "\"t\" is a number, not a text"});
  expect_parts(refusal("{\"t\": \"\\ud800\", \"u\": Nan}", field("t")),
               {"line 1", "mistake at byte", "invalid literal"});
  expect_parts(refusal("{\"t\": \"a\tb\"}", field("t")), {"line 1", "control character U+0009"});
}

TEST_F(TextInput, TakesWhatDecompressorsTake) {
  const auto frame = [](int kind, std::size_t bytes) {  // a skippable frame
    std::string text = {static_cast<char>(0x50 + kind), '\x2a', '\x4d', '\x18'};
    test::append_bytes(text, static_cast<std::uint32_t>(bytes));
    return text + std::string(bytes, 'x');
  };
  write_file(dir_ / "a.zst", frame(0, 4) + zstd("one ") + frame(15, 300'000) + zstd("two") + frame(3, 0));
  write_file(dir_ / "b.gz", gzip("three ") + gzip("four") + std::string(600'000, '\0'));
  tokenize({dir_ / "a.zst", dir_ / "b.gz"});
  EXPECT_EQ(text_of(out_), "one two|three four|");
  for (const std::string& behind : {std::string("garbage"), std::string("\0\0\x1f\x8b\x08 and more", 15)})
    expect_parts(refusal(gzip("text") + behind), {"bytes behind the end of its gzip data", "zcat FILE"});
}

/// A frame of 24 KB can request a window of 2 GiB.
TEST_F(TextInput, RefusesWindowsThatTakeMoreMemoryThanZstdGives) {
  const auto compressed = [](int window_log, const std::string& text) {
    ZSTD_CCtx* const context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
    std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
    ZSTD_inBuffer in{text.data(), text.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (ZSTD_compressStream2(context, &to, &in, ZSTD_e_continue) != 0 || in.pos < in.size) {
    }
    while (ZSTD_compressStream2(context, &to, &in, ZSTD_e_end) != 0) {
    }
    ZSTD_freeCCtx(context);
    out.resize(to.pos);
    return out;
  };
  write_file(dir_ / "in.zst", compressed(27, "text"));
  tokenize({dir_ / "in.zst"});
  EXPECT_EQ(text_of(out_), "text|");
  std::string wide = compressed(27, "text");
  wide[5] = static_cast<char>((31 - 10) << 3);  // the window descriptor, after magic and frame header: 2 GiB
  expect_parts(refusal(wide), {"a window above 128 MiB", "zstd -dc --long=31 FILE"});
}

TEST_F(TextInput, TakesJsonAsTextAndLeavesEmptyFilesOutOnRequest) {
  std::filesystem::create_directory(dir_ / "code");
  write_file(dir_ / "code/__init__.py", "");
  write_file(dir_ / "code/main.js", "x");
  write_file(dir_ / "code/package.json", "{\"name\": \"a\"}");
  expect_parts(error_of(ExitCode::data, [&] { (void)tokenize({dir_ / "code"}); }), {"package.json", "--plain"});
  TokenizeOptions options;
  options.plain = true;
  const TokenizeCounts counts = tokenize({dir_ / "code"}, options);
  EXPECT_EQ(text_of(out_), "x|{\"name\": \"a\"}|");
  EXPECT_EQ(counts.documents, 2);
  EXPECT_EQ(counts.empty_documents, 1);
  expect_parts(error_of(ExitCode::data, [&] { (void)tokenize({dir_ / "code/__init__.py"}); }),
               {"holds no document with text"});
}

/// Two lines of different lengths: were the held part searched again for each read, the time would grow by its square.
TEST_F(TextInput, LongLinesTakeTimeInProportion) {
  const auto seconds = [&](std::size_t bytes) {
    write_file(dir_ / "in.jsonl", "{\"t\": \"" + std::string(bytes, 'a') + "\"}\n");
    const auto begin = std::chrono::steady_clock::now();
    tokenize({dir_ / "in.jsonl"}, field("t"));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double one = seconds(4'000'000), eight = seconds(32'000'000);
  EXPECT_LT(eight, 30 * one) << "of 8 times the length";
}

TEST_F(TextInput, TakesFoldersAndPatternsInTheOrderOfTheirNames) {
  std::filesystem::create_directories(dir_ / "web/more");
  std::filesystem::create_directories(dir_ / "web/.cache");
  write_file(dir_ / "web/b.txt", "b");
  write_file(dir_ / "web/a.txt", "a");
  write_file(dir_ / "web/more/c.md", "c");
  write_file(dir_ / "web/.cache/x.txt", "x");
  write_file(dir_ / "web/.hidden", "x");
  tokenize({dir_ / "web", dir_ / "web/*.txt", dir_ / "web/[b].txt"});
  EXPECT_EQ(text_of(out_), "a|b|c|a|b|b|");
  expect_parts(error_of(ExitCode::data, [&] { (void)tokenize({dir_ / "web/*.json"}); }), {"no file matches"});
}

TEST_F(TextInput, GivesTheSameTokensForAnyNumberOfThreads) {
  std::string lines;
  std::string expected;
  for (int i = 0; i < 40'000; ++i) {
    const std::string text = "document " + std::to_string(i);
    lines += "{\"text\": \"" + text + "\"}\n";
    expected += text + "|";
  }
  write_file(dir_ / "in.jsonl", lines);
  for (const int threads : {1, 4}) {
    TokenizeOptions options = field("text");
    options.threads = threads;
    tokenize({dir_ / "in.jsonl"}, options);
    ASSERT_EQ(text_of(out_), expected) << threads;
  }
  write_file(dir_ / "bad.jsonl", lines + "{}\n" + lines);
  TokenizeOptions options = field("text");
  options.threads = 4;
  expect_parts(error_of(ExitCode::data, [&] { (void)tokenize({dir_ / "bad.jsonl"}, options); }), {"line 40001"});
}

TEST_F(TextInput, PutsAShareOfTheDocumentsAsideForValidation) {
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += "{\"t\": \"" + std::to_string(i) + "\"}\n";
  write_file(dir_ / "in.jsonl", lines);
  TokenizeOptions options = field("t");
  options.validation = 0.1;
  const auto bytes = tokenizer::make_tokenizer("bytes");
  const TokenizeCounts counts = tokenize_files(*bytes, {dir_ / "in.jsonl"}, dir_ / "web.idx", options);
  EXPECT_EQ(counts.documents, 2000);
  EXPECT_EQ(counts.validation_documents, 200);
  EXPECT_EQ(counts.validation_path, dir_ / "web-validation.bin");
  const std::string train = text_of(dir_ / "web.bin");
  const std::string validation = text_of(dir_ / "web-validation.bin");
  EXPECT_EQ(std::count(validation.begin(), validation.end(), '|'), counts.validation_documents);
  EXPECT_EQ(std::count(train.begin(), train.end(), '|'), 2000 - counts.validation_documents);
  for (int i = 0; i < 2000; ++i) {
    const std::string document = "|" + std::to_string(i) + "|";
    const bool in_train = ("|" + train).find(document) != std::string::npos;
    ASSERT_NE(in_train, ("|" + validation).find(document) != std::string::npos) << i;
  }
  options.validation = 1e-9;
  expect_parts(error_of(ExitCode::usage, [&] { (void)tokenize({dir_ / "in.jsonl"}, options); }),
               {"--validation", "none of 2000 documents for validation"});
  EXPECT_FALSE(std::filesystem::exists(out_));
}

}  // namespace
}  // namespace trireme::data::text_input_test

// Fault, data: unreadable lines, empty files -> counted with `--skip-bad N`; a file that is not text is refused
// Fault, data: JSON for `tokenize` without `--field`; Python's extensions of JSON -> refused unless `--plain`;
//   accepted in unread fields
// Fault, data: skippable zstd frames, zeros behind gzip data -> read
// Fault, data: other bytes behind gzip data, zstd windows above 128 MiB -> refused, the latter with a command
// Fault, data: one line of a gigabyte, chats of thousands of messages -> time in proportion to length

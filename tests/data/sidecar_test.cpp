// SPDX-License-Identifier: Apache-2.0
// The sidecar of a token file and the ends of its documents.
#include "trireme/data/sidecar.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/document_ends.hpp"
#include "data/files.hpp"
#include "data/token_writer.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/data/document_checks.hpp"
#include "trireme/data/text/xxh3.hpp"
#include "trireme/data/token_file.hpp"
#include "trireme/data/tokenize.hpp"

namespace trireme::data::sidecar_test {
namespace {

using config::TokenFormat;
using test::error_of;
using test::expect_parts;
using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

std::string xxh3_of(const std::string& path) {
  Xxh3 hash;
  hash.add(test::file_bytes(path));
  return hash.hex();
}

/// The pairs of FILE.ends.
std::vector<std::pair<std::int64_t, std::int64_t>> ends_of(const std::string& path) {
  const std::string bytes = test::file_bytes(ends_path(path));
  std::vector<std::pair<std::int64_t, std::int64_t>> ends(bytes.size() / 16);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    std::memcpy(&ends[i].first, &bytes[16 * i], 8);
    std::memcpy(&ends[i].second, &bytes[16 * i + 8], 8);
  }
  return ends;
}

/// Tokenizes two lines as bytes into `output`; gives the path of the tokens.
std::string tokenize_two(const TemporaryDirectory& dir, const std::string& output, const std::string& response = {}) {
  test::write_file(dir / "in.jsonl", "{\"a\": \"h\\u00e9\", \"b\": \"x\"}\n{\"a\": \"\", \"b\": \"yz\"}\n");
  TokenizeOptions options;
  options.spec = "bytes";
  options.field = response.empty() ? "b" : "a";
  options.response = response;
  return tokenize_files(*tokenizer::make_tokenizer("bytes"), {dir / "in.jsonl"}, dir / output, options).tokens_path;
}

TEST(Sidecar, RecordsSourcesAndOptions) {
  const TemporaryDirectory dir;
  for (const std::string output : {"web.bin", "pair.idx"}) {
    const std::string path = tokenize_two(dir, output, "b");
    const auto json = nlohmann::json::parse(test::file_bytes(path + ".meta"));
    EXPECT_EQ(json["version"], 1);
    EXPECT_EQ(json["dtype"], "uint16");
    EXPECT_EQ(json["tokens"], 8);  // h, two bytes of an accented e, x, end; y, z, end
    EXPECT_EQ(json["documents"], 2);
    EXPECT_EQ(json["targets"], 5);
    EXPECT_EQ(json["text_bytes"], 6);
    EXPECT_EQ(json["vocab_size"], 257);
    EXPECT_TRUE(json["document_begin"].is_null());
    EXPECT_EQ(json["document_end"], 256);
    EXPECT_EQ(json["tokenizer"]["spec"], "bytes");
    EXPECT_EQ(json["tokenizer"]["fingerprint"], tokenizer::vocabulary_fingerprint(*tokenizer::make_tokenizer("bytes")));
    EXPECT_TRUE(json["tokenizer"]["definition"].is_null()) << "bytes have no files";
    EXPECT_THAT(std::string(json["tokenizer"]["library"]), HasSubstr("trireme "));
    EXPECT_EQ(json["options"], (nlohmann::json{{"field", "a"}, {"response", "b"}}));
    ASSERT_EQ(json["sources"].size(), 1);
    EXPECT_EQ(json["sources"][0]["name"], dir / "in.jsonl");
    EXPECT_EQ(json["sources"][0]["size"], test::file_bytes(dir / "in.jsonl").size());
    EXPECT_EQ(json["sources"][0]["hash"], xxh3_of(dir / "in.jsonl"));
    EXPECT_EQ(json["xxh3"]["tokens"], xxh3_of(path));
    EXPECT_EQ(json["xxh3"]["ends"], xxh3_of(path + ".ends"));
    EXPECT_EQ(json["xxh3"]["mask"], xxh3_of(path + ".mask"));
    EXPECT_THAT(ends_of(path), ElementsAre(std::pair{5, 4}, std::pair{8, 6}));
    EXPECT_EQ(to_json(read_sidecar(path)), test::file_bytes(path + ".meta"));
  }
  EXPECT_EQ(Xxh3().hex(), "2d06800538d394c2");  // of nothing, by xxhsum -H3
}

TEST(Sidecar, OfBothPartsWhereDocumentsAreSetAside) {
  const TemporaryDirectory dir;
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "{\"a\": \"" + std::string(static_cast<std::size_t>(i + 1), 'x') + "\"}\n";
  test::write_file(dir / "in.jsonl", lines);
  const TokenizeCounts counts = tokenize_files(*tokenizer::make_tokenizer("bytes"), {dir / "in.jsonl"}, dir / "out.bin",
                                               {.field = "a", .validation = 0.2, .threads = 3});
  std::int64_t text_bytes = 0;
  for (const std::string& path : {counts.tokens_path, counts.validation_path}) {
    const TokenFile file(path, TokenFormat::automatic, 257);
    const Sidecar& sidecar = *file.sidecar();
    EXPECT_EQ(sidecar.tokens, file.tokens());
    EXPECT_EQ(sidecar.text_bytes + sidecar.documents, file.tokens());
    EXPECT_EQ(ends_of(path).back(), (std::pair{sidecar.tokens, sidecar.text_bytes}));
    text_bytes += sidecar.text_bytes;
  }
  EXPECT_EQ(text_bytes, 40 * 41 / 2);
}

/// Document begin of each of the first `count` tokens.
Ids begins_of(const TokenFile& file, std::int64_t first, std::int64_t count) {
  Ids begins(static_cast<std::size_t>(count));
  file.read_document_begins(first, begins);
  return begins;
}

TEST(Sidecar, HasTheDocumentsWhereTheirEndIsAlsoWithinThem) {
  const TemporaryDirectory dir;
  for (const std::string output : {"x.bin", "x.idx"}) {
    TokenWriter writer(dir / output, 10);
    for (const Ids& document : {Ids{1, 9, 2, 9}, Ids{9, 9}, Ids{3, 9}}) {
      writer.append(document);
      writer.end_document();
    }
    writer.finish();
    const TokenFile file(dir / "x.bin", TokenFormat::automatic, 10);
    EXPECT_EQ(begins_of(file, 0, 8), (Ids{0, 0, 0, 0, 4, 4, 6, 6}));
    EXPECT_EQ(begins_of(file, 3, 4), (Ids{0, 1, 1, 3}));
    EXPECT_EQ(begins_of(file, 5, 1), (Ids{0}));
    if (output == "x.bin")
      for (const std::string beside : {"", ".meta", ".ends"}) std::filesystem::remove(dir / ("x.bin" + beside));
  }
}

TEST(Sidecar, WithoutItAMegatronIndexHasTheDocuments) {
  const TemporaryDirectory dir;
  TokenWriter writer(dir / "x.idx", 10);
  for (const Ids& document : {Ids{1, 2}, Ids{3}, Ids{4, 5}}) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
  std::filesystem::remove(sidecar_path(dir / "x.bin"));
  const TokenFile file(dir / "x.idx", TokenFormat::automatic, 10);
  EXPECT_FALSE(file.sidecar().has_value());
  EXPECT_TRUE(file.has_document_ends());
  EXPECT_EQ(begins_of(file, 0, 5), (Ids{0, 0, 2, 3, 3}));
}

/// Documents of many lengths, some empty, over several blocks of ends, of one and of several sequences of an index.
TEST(DocumentEnds, AreFoundFromAnyToken) {
  const TemporaryDirectory dir;
  const std::uint64_t key = stream_key(1, "document ends");
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> starts{0}, ends;
  std::string file_bytes;
  std::int64_t tokens = 0;
  for (std::uint64_t document = 0; document < 3000; ++document) {
    for (std::uint32_t sequence = 0; sequence < 1 + philox4x32(key, document)[0] % 3; ++sequence) {
      lengths.push_back(static_cast<std::int32_t>(philox4x32(key, document)[1 + sequence % 2] % 9));
      tokens += lengths.back();
    }
    starts.push_back(static_cast<std::int64_t>(lengths.size()));
    ends.push_back(tokens);
    test::append_bytes(file_bytes, tokens);
    test::append_bytes(file_bytes, std::int64_t{0});
  }
  test::write_file(dir / "x.bin.ends", file_bytes);
  const auto index = megatron_index_bytes(TokenType::uint16, lengths, starts);
  test::write_file(dir / "x.idx", {index.data(), index.size()});
  const auto of_file = open_ends_file(dir / "x.bin.ends", 3000);
  const auto of_index = open_index_ends(dir / "x.idx", check_megatron_index(dir / "x.idx", 2 * tokens));
  check_same_ends("x.bin", *of_file, *of_index);
  for (std::int64_t first = 0; first < tokens; first += 97)
    for (const std::int64_t count : {1, 10, 700}) {
      if (first + count > tokens) continue;
      Ids expected;
      for (std::int64_t at = first; at < first + count; ++at) {
        const auto end = std::ranges::upper_bound(ends, at);
        const std::int64_t begin = end == ends.begin() ? 0 : *(end - 1);
        expected.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(begin - first, 0)));
      }
      for (const DocumentEnds* source : {of_file.get(), of_index.get()}) {
        Ids begins(static_cast<std::size_t>(count));
        source->begins(first, begins);
        ASSERT_EQ(begins, expected) << count << " tokens from " << first;
      }
    }
}

TEST(Sidecar, OfOtherTokensIsRefused) {
  const TemporaryDirectory dir;
  const auto refusal = [&](const std::function<void(const std::string&)>& change, const std::string& output = "x.bin") {
    const std::string path = tokenize_two(dir, output, "b");
    change(path);
    const std::string message = error_of(ExitCode::data, [&] { (void)TokenFile(path, TokenFormat::automatic, 257); });
    for (const std::string beside : {"", ".meta", ".ends", ".mask"}) std::filesystem::remove(path + beside);
    std::filesystem::remove(dir / "x.idx");
    return message;
  };
  const auto replaced = [](const std::string& path, const std::string& from, const std::string& to) {
    std::string json = test::file_bytes(path + ".meta");
    json.replace(json.find(from), from.size(), to);
    test::write_file(path + ".meta", json);
  };
  EXPECT_THAT(refusal([](const std::string& path) { test::write_file(path, test::file_bytes(path) + "ab"); }),
              HasSubstr("9 tokens"));
  EXPECT_THAT(refusal([](const std::string& path) { std::filesystem::resize_file(path + ".ends", 16); }),
              HasSubstr("16 bytes"));
  EXPECT_THAT(refusal([](const std::string& path) { std::filesystem::remove(path + ".ends"); }),
              HasSubstr("does not exist"));
  EXPECT_THAT(refusal([](const std::string& path) { std::filesystem::remove(path + ".mask"); }),
              HasSubstr("mask of targets"));
  EXPECT_THAT(refusal([&](const std::string& path) { replaced(path, "\"tokens\": 8", "\"tokens\": 9"); }),
              HasSubstr("counts 9 tokens, the file holds 8"));
  EXPECT_THAT(refusal([&](const std::string& path) { replaced(path, "\"uint16\"", "\"uint32\""); }),
              HasSubstr("has 8 bytes, but"));
  EXPECT_THAT(refusal([&](const std::string& path) { replaced(path, "\"version\": 1", "\"version\": 2"); }),
              HasSubstr("version 2 is not known, only version 1"));
  EXPECT_THAT(refusal([&](const std::string& path) { test::write_file(path + ".meta", "{\"version\": 1"); }),
              HasSubstr("is not a JSON object"));
  EXPECT_THAT(refusal([&](const std::string& path) { replaced(path, "\"tokens\": 8", "\"tokens\": -1"); }),
              HasSubstr("\"tokens\" is not a count"));
  EXPECT_THAT(refusal(
                  [](const std::string& path) {
                    std::string ends = test::file_bytes(path + ".ends");
                    ends[0] = 4;  // of the first document
                    test::write_file(path + ".ends", ends);
                  },
                  "x.idx"),
              HasSubstr("document 0 ends at token 4 and 5"));
}

TEST(Sidecar, GoesBeforeNewTokensAreThere) {
  const TemporaryDirectory dir;
  const std::string path = tokenize_two(dir, "x.bin", "b");
  const std::string before = test::file_bytes(path + ".meta");
  {
    TokenWriter writer(path, 257);
    writer.append(Ids{1, 2});
  }
  EXPECT_EQ(test::file_bytes(path + ".meta"), before) << "nothing was finished";
  TokenWriter writer(path, 257);
  writer.append(Ids{1, 2});
  writer.finish();
  EXPECT_EQ(TokenFile(path, TokenFormat::automatic, 257).sidecar()->tokens, 2);
  EXPECT_EQ(dir.names(), (std::vector<std::string>{"in.jsonl", "x.bin", "x.bin.ends", "x.bin.meta"}));
}

config::Data masked_documents(const std::string& path) {
  config::Data data;
  data.train = {{.path = path}};
  data.seq_len = 4;
  data.shuffle = false;
  data.document_mask = true;
  return data;
}

Ids begins_of_first_step(const config::Data& data) {
  BatchReader reader(data, Split::train, 257, 1, {.micro = 2});
  return reader.next().microbatches[0].document_begins;
}

TEST(DocumentMask, TakesTheSidecarThenTheIndexThenTheEnd) {
  const TemporaryDirectory dir;
  TokenWriter writer(dir / "x.idx", 10);
  for (const Ids& document : {Ids{1, 9, 2}, Ids{9, 9, 3, 4}, Ids{5, 9}}) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
  config::Data data = masked_documents(dir / "x.bin");
  const Ids documents{0, 0, 0, 3, 0, 0, 0, 3};
  EXPECT_EQ(begins_of_first_step(data), documents);
  data.document_end = 9;
  EXPECT_EQ(begins_of_first_step(data), documents);
  std::filesystem::remove(sidecar_path(dir / "x.bin"));
  EXPECT_EQ(begins_of_first_step(data), documents);
  std::filesystem::remove(dir / "x.idx");
  EXPECT_EQ(begins_of_first_step(data), (Ids{0, 0, 2, 2, 0, 1, 1, 1}));
  data.document_end.reset();
  expect_parts(error_of(ExitCode::usage, [&] { (void)begins_of_first_step(data); }),
               {"x.bin", "neither a sidecar", "data.document_end"});
}

TEST(DocumentMask, WarnsWhereAnEndIsADoubtfulBorder) {
  const TemporaryDirectory dir;
  const auto warnings = [&](const Ids& tokens, bool masked) {
    const std::string path = test::write_tokens(dir / "x", tokens);
    std::filesystem::remove(mask_path(path));
    if (masked) test::write_file(mask_path(path), std::string(tokens.size(), '\1'));
    const test::Warnings warned;
    const auto datasets = open_datasets({{.path = path}}, false, TokenFormat::automatic, 4, 10);
    warn_of_document_ends(datasets, 9);
    std::string all;
    for (const std::string& line : warned.lines) all += line;
    return all;
  };
  EXPECT_EQ(warnings({1, 2, 9, 3, 4, 9}, false), "");
  EXPECT_THAT(warnings({1, 2, 8, 3, 4, 8}, false), HasSubstr("none of 6 sampled tokens is one"));
  EXPECT_THAT(warnings({1, 2, 9, 9, 4, 9}, false), HasSubstr("token 3 is one directly behind another"));
  EXPECT_THAT(warnings({1, 2, 9, 3, 4, 9}, true), HasSubstr("it has a mask of targets"));
}

/// Files of datatrove, Dolma and others whose ids would fit 16 bits.
TEST(TokenFile, AutoSeesTheWidthOfRawTokens) {
  const TemporaryDirectory dir;
  Ids tokens;
  for (int i = 0; i < 50'000; ++i) tokens.push_back(i * 7 % 64);
  test::write_file(dir / "u16", test::stored<std::uint16_t>(tokens));
  test::write_file(dir / "u32", test::stored<std::uint32_t>(tokens));
  test::write_file(dir / "i64", test::stored<std::int64_t>(tokens));
  for (const std::int64_t vocab_size : {64, 65536, 128256}) {
    for (const auto& [name, format] : {std::pair{"u16", TokenFormat::uint16}, {"u32", TokenFormat::uint32}}) {
      if (vocab_size > 65536 && format == TokenFormat::uint16) continue;  // ids beyond the vocabulary refuse it
      const TokenFile file(dir / name, TokenFormat::automatic, vocab_size);
      EXPECT_EQ(file.format(), format) << name << " of " << vocab_size;
      Ids read(tokens.size());
      ASSERT_EQ(file.tokens(), static_cast<std::int64_t>(tokens.size()));
      file.read(0, read);
      EXPECT_EQ(read, tokens);
    }
    EXPECT_THAT(error_of(ExitCode::data, [&] { (void)TokenFile(dir / "i64", TokenFormat::automatic, vocab_size); }),
                HasSubstr(vocab_size > 65536 ? "write them as uint32" : "write them as uint16"));
  }
}

/// Ids of a vocabulary of 128,256 in a run whose vocabulary is given as 50,000: refused, not read as twice as many.
TEST(TokenFile, AutoSeesTheWidthOfRawTokensThatLeaveTheVocabulary) {
  const TemporaryDirectory dir;
  Ids some, few;
  for (int i = 0; i < 20'000; ++i) {
    some.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(i) * 48271 % 128'256));
    few.push_back(i == 7 ? 70'000 : static_cast<std::int32_t>(static_cast<std::int64_t>(i) * 48271 % 50'000));
  }
  for (const Ids& tokens : {some, few}) {
    test::write_file(dir / "u32", test::stored<std::uint32_t>(tokens));
    const TokenFile file(dir / "u32", TokenFormat::automatic, 50'000);
    EXPECT_EQ(file.tokens(), static_cast<std::int64_t>(tokens.size()));
    Ids read(tokens.size());
    EXPECT_THAT(error_of(ExitCode::data, [&] { file.read(0, read); }), HasSubstr("outside the vocabulary of 50000"));
    test::write_file(dir / "i64", test::stored<std::int64_t>(tokens));
    EXPECT_THAT(error_of(ExitCode::data, [&] { (void)TokenFile(dir / "i64", TokenFormat::automatic, 50'000); }),
                HasSubstr("holds tokens of 8 bytes"));
  }
  // Small ids of 16 bits are none of 32, whatever every other one is.
  Ids small;
  for (int i = 0; i < 20'000; ++i) small.push_back(i % 2 == 0 ? i % 200 : i % 11);
  test::write_file(dir / "u16", test::stored<std::uint16_t>(small));
  EXPECT_EQ(TokenFile(dir / "u16", TokenFormat::automatic, 50'000).format(), TokenFormat::uint16);
}

}  // namespace
}  // namespace trireme::data::sidecar_test

// Fault, data: raw uint32 or int64 files taken for 16 bits -> read as uint32, or refused, by a sample

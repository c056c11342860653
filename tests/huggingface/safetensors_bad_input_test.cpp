// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "huggingface/files.hpp"
#include "trireme/base/error.hpp"
#include "trireme/huggingface/safetensors.hpp"

namespace trireme::huggingface {
namespace {

std::string open_message(std::string_view bytes) {
  const TemporaryDirectory directory;
  put_file(directory / "bad.safetensors", bytes);
  const std::string message =
      message_of<CheckpointError>([&] { (void)SafetensorsFile::open(directory / "bad.safetensors"); });
  expect_parts(message, {"bad.safetensors"});
  return message;
}

/// A file of one or two tensors with `header`, and 8 bytes of data.
std::string header_message(std::string_view header) { return open_message(safetensors(header, "12345678")); }

TEST(SafetensorsHeader, RefusesAFileThatIsTooShort) {
  expect_parts(open_message(""), {"has 0 bytes", "copy or download"});
  expect_parts(open_message("1234567"), {"has 7 bytes"});
}

TEST(SafetensorsHeader, RefusesALengthBeyondTheFileOrTheLimit) {
  expect_parts(open_message(bytes_of(std::vector<std::uint64_t>{100}) + "{}"), {"100 bytes", "only 2"});
  expect_parts(open_message(bytes_of(std::vector<std::uint64_t>{100'000'001}) + "{}"),
               {"100000001", "at most 100000000"});
  expect_parts(open_message(bytes_of(std::vector<std::uint64_t>{~0ULL}) + "{}"), {"18446744073709551615"});
}

TEST(SafetensorsHeader, RecognizesAGitLfsPointer) {
  expect_parts(open_message("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
               {"git lfs pull"});
}

TEST(SafetensorsHeader, RefusesWhatIsNotAJsonTable) {
  expect_parts(header_message("{\"a\":"), {"not valid JSON"});
  expect_parts(header_message(""), {"not valid JSON"});
  expect_parts(header_message("{\"\xff\xfe\":1}"), {"not valid JSON"});
  expect_parts(header_message("[1,2]"), {"not a table"});
  expect_parts(header_message(std::string(100'000, '[')), {"deeper"});
  expect_parts(header_message("{\"a\":1e999}"), {"out of range"});
}

TEST(SafetensorsHeader, RefusesAKeyGivenTwice) {
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},
                                  "a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})"),
               {"\"a\" twice"});
  expect_parts(header_message(R"({"a":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}})"),
               {"\"dtype\" twice"});
}

TEST(SafetensorsHeader, RefusesAnIncompleteTensor) {
  expect_parts(header_message(R"({"a":7})"), {"\"a\" has no dtype"});
  expect_parts(header_message(R"({"a":{"shape":[8],"data_offsets":[0,8]}})"), {"has no dtype"});
  expect_parts(header_message(R"({"a":{"dtype":"U8","data_offsets":[0,8]}})"), {"has no shape"});
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[8]}})"), {"has no data_offsets"});
}

TEST(SafetensorsHeader, RefusesAnUnknownType) {
  expect_parts(header_message(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})"),
               {"\"a\"", "\"F31\"", "F32"});
  expect_parts(header_message(R"({"a":{"dtype":5,"shape":[2],"data_offsets":[0,8]}})"), {"not a name"});
}

TEST(SafetensorsHeader, RefusesAShapeOfOtherThanNumbers) {
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":8,"data_offsets":[0,8]}})"), {"not a list"});
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})"), {"-8", "shape"});
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}})"), {"8.0", "shape"});
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":["8"],"data_offsets":[0,8]}})"), {"shape"});
}

TEST(SafetensorsHeader, RefusesASizeThatIsNotTheShapes) {
  expect_parts(header_message(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"), {"8 bytes", "takes 12"});
  expect_parts(header_message(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,8]}})"), {"cannot be"});
  expect_parts(
      header_message(R"({"a":{"dtype":"F32","shape":[4611686018427387,4611686018427387],"data_offsets":[0,8]}})"),
      {"cannot be"});
}

TEST(SafetensorsHeader, RefusesOffsetsOutOfBounds) {
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})"), {"byte 9", "only 8"});
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})"), {"[begin, end]"});
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0]}})"), {"[begin, end]"});
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,18446744073709551615]}})"),
               {"18446744073709551615"});
}

TEST(SafetensorsHeader, RefusesOverlapsAndHolesAndLeftovers) {
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},
                                  "b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})"),
               {"\"b\" overlaps tensor \"a\""});
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
                                  "b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]}})"),
               {"\"b\" leaves 2 bytes"});
  expect_parts(header_message(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})"), {"5 bytes at its end"});
  expect_parts(header_message("{}"), {"8 bytes at its end"});
}

TEST(SafetensorsHeader, ShowsStrangeNamesWithoutHarm) {
  const std::string message = header_message("{\"\\u001b[31m" + std::string(5000, 'x') + "\":1}");
  expect_parts(message, {"\\u001b[31mxxx", "..."});
  EXPECT_LT(message.size(), 500U);
}

TEST(SafetensorsFile, ReportsWhatIsWrongWithThePath) {
  expect_parts(message_of<CheckpointError>([] { (void)SafetensorsFile::open("/nonexistent/x"); }),
               {"/nonexistent/x", "No such file"});
  const TemporaryDirectory directory;
  expect_parts(message_of<CheckpointError>([&] { (void)SafetensorsFile::open(directory.path()); }),
               {"not a regular file"});
}

TEST(SafetensorsFile, NoticesAFileThatShrinksWhileItIsRead) {
  const TemporaryDirectory directory;
  const std::string path = directory / "m";
  put_file(path, safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678"));
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  std::vector<float> values(2);
  expect_parts(message_of<CheckpointError>([&] { file.read_fp32("a", {.begin = 0, .end = 2}, values); }),
               {"ends at byte"});
}

/// Two sound files whose headers the fuzzing damages.
std::string sound_file(bool brief) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  if (brief) return safetensors(R"({"w":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}})", bytes_of(values));
  return safetensors(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
    "b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})",
                     bytes_of(values));
}

/// Reads every readable tensor of `path`: exact data, or an error that names the file.
void expect_exact_or_error(const std::string& path, const std::string& bytes) {
  try {
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const auto& [name, info] : file.tensors()) {
      if (!info.readable()) continue;
      std::vector<float> values(static_cast<std::size_t>(info.elements()));
      file.read_fp32(name, {.begin = 0, .end = info.elements()}, values);
      if (info.dtype != "F32") continue;
      ASSERT_EQ(bytes_of(values), bytes.substr(static_cast<std::size_t>(info.begin), values.size() * 4));
    }
  } catch (const CheckpointError& error) {
    ASSERT_NE(std::string_view(error.what()).find(path), std::string_view::npos) << error.what();
  }
}

TEST(SafetensorsFuzz, RandomBytesInTheHeaderGiveAnErrorOrExactData) {
  const TemporaryDirectory directory;
  const std::string path = directory / "fuzzed";
  std::mt19937 random(20261121);
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = sound_file(round % 2 == 0);
    const std::size_t header_end = bytes.size() - 32;
    for (unsigned hits = 1 + random() % 4; hits > 0; --hits) {
      const bool printable = random() % 2 == 0;
      bytes[random() % header_end] = static_cast<char>(printable ? 32 + random() % 95 : random() % 256);
    }
    put_file(path, bytes);
    expect_exact_or_error(path, bytes);
  }
}

TEST(SafetensorsFuzz, AFileCutAnywhereIsAnError) {
  const TemporaryDirectory directory;
  const std::string bytes = sound_file(false);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    put_file(directory / "cut", bytes.substr(0, size));
    ASSERT_THROW((void)SafetensorsFile::open(directory / "cut"), CheckpointError) << size;
  }
}

}  // namespace
}  // namespace trireme::huggingface

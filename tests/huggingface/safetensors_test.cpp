// SPDX-License-Identifier: Apache-2.0
#include "trireme/huggingface/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <random>

#include "huggingface/files.hpp"
#include "huggingface/half.hpp"
#include "trireme/base/error.hpp"

namespace trireme::huggingface {
namespace {

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> read_all(const SafetensorsFile& file, const std::string& name) {
  const std::int64_t elements = file.tensors().at(name).elements();
  std::vector<float> values(static_cast<std::size_t>(elements));
  file.read_fp32(name, {.begin = 0, .end = elements}, values);
  return values;
}

std::vector<TensorSpec> specs(DType dtype) {
  return {{.name = "a", .shape = {3, 5}, .dtype = dtype},
          {.name = "b.weight", .shape = {7}, .dtype = dtype},
          {.name = "\"quoted\"\n", .shape = {2, 2, 2}, .dtype = dtype}};
}

TEST(Safetensors, GivesBackFp32BitForBit) {
  const TemporaryDirectory directory;
  const std::string path = directory / "model.safetensors";
  const std::vector<float> values = random_values(30, 1);
  SafetensorsWriter writer(path, specs(DType::fp32));
  writer.append(values);
  writer.finish();
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors().at("a").shape, (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ(read_all(file, "a"), std::vector(values.begin(), values.begin() + 15));
  EXPECT_EQ(read_all(file, "b.weight"), std::vector(values.begin() + 15, values.begin() + 22));
  EXPECT_EQ(read_all(file, "\"quoted\"\n"), std::vector(values.begin() + 22, values.end()));
}

TEST(Safetensors, RoundsBf16OnceAndOnly) {
  const TemporaryDirectory directory;
  const std::string path = directory / "model.safetensors";
  std::vector<float> values = random_values(30, 2);
  SafetensorsWriter writer(path, specs(DType::bf16));
  writer.append(values);
  writer.finish();
  for (float& value : values) value = bf16_to_float(float_to_bf16(value));
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.tensors().at("a").dtype, "BF16");
  EXPECT_EQ(read_all(file, "a"), std::vector(values.begin(), values.begin() + 15));
  EXPECT_EQ(read_all(file, "b.weight"), std::vector(values.begin() + 15, values.begin() + 22));
}

TEST(Safetensors, WritesTheSameBytesHoweverTheValuesArrive) {
  const TemporaryDirectory directory;
  const std::vector<float> values = random_values(30, 3);
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    SafetensorsWriter whole(directory / "whole", specs(dtype));
    whole.append(values);
    whole.finish();
    SafetensorsWriter pieces(directory / "pieces", specs(dtype));
    for (std::size_t i = 0; i < 30; i += 4)
      pieces.append(std::span(values).subspan(i, std::min<std::size_t>(4, 30 - i)));
    pieces.finish();
    EXPECT_EQ(get_file(directory / "whole"), get_file(directory / "pieces"));
  }
}

TEST(Safetensors, AlignsItsDataToEightBytes) {
  const TemporaryDirectory directory;
  for (int length = 1; length < 9; ++length) {
    const std::string path = directory / "aligned";
    SafetensorsWriter writer(path, {{.name = std::string(static_cast<std::size_t>(length), 'x'), .shape = {1}}});
    writer.append(std::vector{1.0F});
    writer.finish();
    EXPECT_EQ(SafetensorsFile::open(path).tensors().begin()->second.begin % 8, 0);
  }
}

TEST(Safetensors, ReadsAnyRangeOfEveryWeightType) {
  const TemporaryDirectory directory;
  const std::string header = R"({"f":{"dtype":"F32","shape":[10],"data_offsets":[0,40]},
    "b":{"dtype":"BF16","shape":[2,5],"data_offsets":[40,60]},"h":{"dtype":"F16","shape":[10],"data_offsets":[60,80]},
    "i":{"dtype":"I64","shape":[1],"data_offsets":[80,88]},"s":{"dtype":"F32","shape":[],"data_offsets":[88,92]},
    "e":{"dtype":"F32","shape":[0,3],"data_offsets":[92,92]},"__metadata__":{"format":"pt"}})";
  const std::vector<float> values = {0, 1, -2, 3.5, 0.25, -0.5, 100, 1024, -8, 6};
  std::vector<std::uint16_t> brain;
  for (const float value : values) brain.push_back(float_to_bf16(value));
  const std::vector<std::uint16_t> half = {0, 0x3c00, 0xc000, 0x4300, 0x3400, 0xb800, 0x5640, 0x6400, 0xc800, 0x4600};
  put_file(directory / "m",
           safetensors(header, bytes_of(values) + bytes_of(brain) + bytes_of(half) +
                                   bytes_of(std::vector<std::int64_t>{5}) + bytes_of(std::vector{2.5F})));
  const SafetensorsFile file = SafetensorsFile::open(directory / "m");
  EXPECT_EQ(file.tensors().size(), 6U);
  EXPECT_EQ(read_all(file, "s"), std::vector{2.5F});
  EXPECT_EQ(read_all(file, "e"), std::vector<float>{});
  for (const std::string name : {"f", "b", "h"}) {
    for (std::int64_t begin = 0; begin <= 10; ++begin) {
      for (std::int64_t end = begin; end <= 10; ++end) {
        std::vector<float> read(static_cast<std::size_t>(end - begin));
        file.read_fp32(name, {.begin = begin, .end = end}, read);
        ASSERT_EQ(read, std::vector(values.begin() + begin, values.begin() + end)) << name;
      }
    }
  }
  expect_parts(message_of<CheckpointError>([&] { (void)read_all(file, "i"); }), {"\"i\"", "I64", "F32, BF16 and F16"});
  std::vector<float> one(1);
  expect_parts(message_of<CheckpointError>([&] { file.read_fp32("x", {.begin = 0, .end = 1}, one); }),
               {"no tensor \"x\""});
  EXPECT_THROW(file.read_fp32("f", {.begin = 10, .end = 11}, one), BugError);
  EXPECT_THROW(file.read_fp32("f", {.begin = 0, .end = 2}, one), BugError);
}

TEST(Safetensors, ReadsPiecesLargerThanItsBuffer) {
  const TemporaryDirectory directory;
  const std::int64_t elements = (1 << 21) + 17;
  std::vector<float> values = random_values(elements, 4);
  SafetensorsWriter writer(directory / "large", {{.name = "large", .shape = {elements}, .dtype = DType::bf16}});
  writer.append(values);
  writer.finish();
  for (float& value : values) value = bf16_to_float(float_to_bf16(value));
  EXPECT_EQ(read_all(SafetensorsFile::open(directory / "large"), "large"), values);
}

TEST(SafetensorsWriter, LeavesNothingWhenItIsNotFinished) {
  const TemporaryDirectory directory;
  {
    SafetensorsWriter writer(directory / "model", specs(DType::fp32));
    writer.append(random_values(10, 5));
    EXPECT_EQ(directory.names(), std::vector<std::string>{"model.partial"});
    EXPECT_THROW(writer.finish(), BugError) << "values are missing";
  }
  EXPECT_TRUE(directory.names().empty());
}

TEST(SafetensorsWriter, TreatsWrongDeclarationsAsBugs) {
  const TemporaryDirectory directory;
  const TensorSpec odd{.name = "odd", .shape = {3}, .dtype = DType::bf16};
  const TensorSpec wide{.name = "wide", .shape = {3}, .dtype = DType::fp32};
  EXPECT_THROW(SafetensorsWriter(directory / "a", {odd, wide}), BugError);
  EXPECT_THROW(SafetensorsWriter(directory / "b", {odd, odd}), BugError);
  EXPECT_TRUE(directory.names().empty());
  SafetensorsWriter writer(directory / "c", {wide, odd});
  EXPECT_THROW(writer.append(std::vector<float>(7)), BugError);
}

TEST(SafetensorsWriter, ReportsWhyItCannotCreateAFile) {
  expect_parts(message_of<WriteError>([] { SafetensorsWriter("/nonexistent/directory/model", {}); }),
               {"/nonexistent/directory/model.partial", "No such file"});
}

TEST(SafetensorsWriter, ReportsAFileSystemThatTakesNoMore) {
  const TemporaryDirectory directory;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<WriteError>([&] {
    SafetensorsWriter writer(directory / "model", {{.name = "a", .shape = {4096}}});
    writer.append(std::vector<float>(4096));
    writer.finish();
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  expect_parts(message, {"model.partial", "cannot write", "File too large"});
  EXPECT_TRUE(directory.names().empty());
}

}  // namespace
}  // namespace trireme::huggingface

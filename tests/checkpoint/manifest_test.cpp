// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;

/// Two ranks that share a vector and a matrix, with all their moments.
std::string sound() {
  Manifest manifest;
  manifest.state.step = 7;
  manifest.state.taken = {3, 4};
  manifest.state.run_file = "[run]\nname = \"\xc3\xa9t\xc3\xa9\"\n";
  manifest.mesh = {.replicate = 1, .shard = 2, .tensor = 1};
  manifest.model = {{"model.layers", "1"}};
  manifest.parameters = {{"a.weight", {6}}, {"b.weight", {4, 5}}};
  manifest.digests = {1, 0xffffffffffffffffULL};
  std::vector<std::string> files;
  for (int rank = 0; rank < 2; ++rank) {
    SavedFile file{.path = shard_path(rank), .dp_rank = rank, .bytes = 1000, .rest = 5, .datasets = {}};
    std::int64_t at = 100;
    for (const Quantity quantity : all_quantities) {
      SavedDataset dataset{.name = std::string(to_text(quantity)) + "/b0",
                           .quantity = quantity,
                           .elements = 64,
                           .byte_offset = at,
                           .slices = {}};
      if (rank == 0) dataset.slices.push_back({.parameter = 0, .elements = {0, 6}, .offset = 0, .checksums = {9}});
      const shard::Range half{.begin = 10 * rank, .end = 10 * rank + 10};
      dataset.slices.push_back({.parameter = 1, .elements = half, .offset = 20, .checksums = {0xabc}});
      file.datasets.push_back(dataset);
      at += 256;
    }
    files.push_back(file_to_json(file));
  }
  return to_json(manifest, files);
}

std::string message_of(const std::string& text) {
  try {
    (void)parse_manifest("index.h5", text);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "accepted";
}

/// The sound manifest with its first `what` replaced.
std::string with(const std::string& what, const std::string& instead) {
  std::string text = sound();
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), instead);
}

TEST(Manifest, ComesBackAsItWasWritten) {
  const Manifest manifest = parse_manifest("index.h5", sound());
  EXPECT_EQ(manifest.state.step, 7);
  EXPECT_EQ(manifest.state.taken, (std::vector<std::int64_t>{3, 4}));
  EXPECT_THAT(manifest.state.run_file, HasSubstr("\xc3\xa9t\xc3\xa9"));
  EXPECT_EQ(manifest.digests, (std::vector<std::uint64_t>{1, 0xffffffffffffffffULL}));
  ASSERT_EQ(manifest.files.size(), 2U);
  const SavedSlice& slice = manifest.files[1].datasets[2].slices[0];
  EXPECT_EQ(slice.elements, (shard::Range{10, 20}));
  EXPECT_EQ(slice.checksums, std::vector<std::uint64_t>{0xabc});
  EXPECT_EQ(manifest.files[1].datasets[2].quantity, Quantity::second_moment);
}

TEST(Manifest, OfAnotherFormatOrVersionIsRefused) {
  EXPECT_THAT(message_of(with("\"version\":1", "\"version\":2")), HasSubstr("format version 2"));
  EXPECT_THAT(message_of(with("trireme checkpoint", "something else")), HasSubstr("no manifest of Trireme"));
  EXPECT_THAT(message_of("{}"), HasSubstr("index.h5"));
  EXPECT_THAT(message_of("[]"), HasSubstr("index.h5"));
  EXPECT_THAT(message_of(""), HasSubstr("not valid JSON"));
}

TEST(Manifest, CutAnywhereIsRefused) {
  const std::string text = sound();
  for (std::size_t size = 0; size < text.size(); size += 7)
    EXPECT_NE(message_of(text.substr(0, size)), "accepted") << size;
}

TEST(Manifest, ThatLeavesItsDirectoryOrItsFilesIsRefused) {
  EXPECT_THAT(message_of(with("shards/dp-00000", "../../etc/00000")), HasSubstr("not a shard's"));
  EXPECT_THAT(message_of(with("\"byte_offset\":100", "\"byte_offset\":900")), HasSubstr("out of range"));
  EXPECT_THAT(message_of(with("\"elements\":64", "\"elements\":9000000000000")), HasSubstr("out of range"));
  EXPECT_THAT(message_of(with("[1,0,10,20,", "[1,0,10,60,")), HasSubstr("out of range"));
  EXPECT_THAT(message_of(with("[1,0,10,20,", "[7,0,10,20,")), HasSubstr("out of range"));
  EXPECT_THAT(message_of(with("[4,5]", "[4000000000000,5000000000000]")), HasSubstr("too many elements"));
  EXPECT_THAT(message_of(with("[4,5]", "[-4,-5]")), HasSubstr("out of range"));
}

TEST(Manifest, WithElementsMissingOrTwiceIsRefused) {
  EXPECT_THAT(message_of(with("[1,0,10,20,", "[1,0,9,20,")), HasSubstr("b.weight has a gap or an overlap"));
  EXPECT_THAT(message_of(with("[1,10,20,20,", "[1,10,19,20,")), HasSubstr("b.weight ends at element 19"));
  EXPECT_THAT(message_of(with("[\"0000000000000009\"]", "[]")), HasSubstr("0 checksums instead of 1"));
  EXPECT_THAT(message_of(with("\"shard\":2", "\"shard\":3")), HasSubstr("another number of ranks"));
  EXPECT_THAT(message_of(with("\"step\":7", "\"step\":7,\"step\":8")), HasSubstr("twice"));
}

}  // namespace
}  // namespace trireme::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "../../src/checkpoint/load/share.hpp"
#include "../../src/checkpoint/manifest_bytes.hpp"
#include "trireme/base/error.hpp"

namespace trireme::checkpoint::manifest_test {
namespace {

using testing::HasSubstr;

/// Two ranks, of the shard or of the pipeline axis, that share a vector and a matrix, with all their moments. muon:
/// updates the matrix, which has no second moment.
std::string sound(const mesh::Mesh& mesh = {.replicate = 1, .shard = 2, .tensor = 1}, bool muon = false) {
  Manifest manifest;
  manifest.state.step = 7;
  manifest.state.taken = {3, 4};
  manifest.state.run_file = "[run]\nname = \"\xc3\xa9t\xc3\xa9\"\n";
  manifest.mesh = mesh;
  manifest.model = {{"model.layers", "1"}};
  manifest.parameters = {{"a.weight", {6}}, {"b.weight", {4, 5}}};
  if (muon) manifest.rules = {optimizer::UpdateRule::adamw, optimizer::UpdateRule::muon};
  manifest.digests = {1, 0xffffffffffffffffULL};
  std::vector<std::string> files;
  for (int rank = 0; rank < 2; ++rank) {
    const mesh::Coordinates place = mesh.coordinates(Rank{rank});
    SavedFile file{.path = shard_path(mesh, place.pipeline, place.shard, 0),
                   .pipeline_rank = place.pipeline,
                   .dp_rank = place.shard,
                   .bytes = 1000,
                   .rest = 5,
                   .datasets = {}};
    std::int64_t at = 100;
    for (const Quantity quantity : all_quantities) {
      SavedDataset dataset{.name = std::string(to_text(quantity)) + "/b0",
                           .quantity = quantity,
                           .elements = 64,
                           .byte_offset = at,
                           .slices = {}};
      if (rank == 0)
        dataset.slices.push_back({.parameter = 0, .hyperslab = {.length = 6}, .offset = 0, .checksums = {9}});
      const shard::Hyperslab half{.first = 10 * rank, .length = 10};
      if (has(manifest, quantity, 1))
        dataset.slices.push_back({.parameter = 1, .hyperslab = half, .offset = 20, .checksums = {0xabc}});
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
  EXPECT_EQ(slice.hyperslab, (shard::Hyperslab{.first = 10, .length = 10}));
  EXPECT_EQ(slice.checksums, std::vector<std::uint64_t>{0xabc});
  EXPECT_EQ(manifest.files[1].datasets[2].quantity, Quantity{2});
}

TEST(Manifest, NamesTheFilesOfPipelineRanks) {
  const std::string text = sound({.pipeline = 2});
  const Manifest manifest = parse_manifest("index.h5", text);
  EXPECT_EQ(manifest.mesh, (mesh::Mesh{.pipeline = 2}));
  EXPECT_EQ(manifest.files[0].path, "shards/dp-00000-pp-00-tp-00.h5");
  EXPECT_EQ(manifest.files[1].path, "shards/dp-00000-pp-01-tp-00.h5");
  EXPECT_EQ(manifest.files[1].pipeline_rank, 1);
  EXPECT_EQ(files_of({.pipeline = 2, .replicate = 2, .shard = 3, .tensor = 2}, 4), 8);
  const auto changed = [&](const std::string& what, const std::string& instead) {
    std::string other = text;
    return message_of(other.replace(other.find(what), what.size(), instead));
  };
  EXPECT_THAT(changed("\"version\":3", "\"version\":2"), HasSubstr("not of its format version"));
  EXPECT_THAT(changed("\"pipeline\":2", "\"pipeline\":3"), HasSubstr("another number of ranks"));
  EXPECT_THAT(changed("\"pipeline\":2", "\"pipeline\":0"), HasSubstr("out of range"));
  EXPECT_THAT(changed("\"pipeline_rank\":1", "\"pipeline_rank\":0"), HasSubstr("is not a shard's"));
  EXPECT_THAT(changed("pp-01-tp-00.h5\",\"dp_rank\":0,\"tensor_rank\":0,\"pipeline_rank\":1",
                      "pp-02-tp-00.h5\",\"dp_rank\":0,\"tensor_rank\":0,\"pipeline_rank\":2"),
              HasSubstr("files are out of order"));
}

TEST(Manifest, ListsTheRuleOfEveryParameterIfNotAllAreAdamWs) {
  EXPECT_EQ(sound().find("rules"), std::string::npos);
  for (const mesh::Mesh& mesh : {mesh::Mesh{.shard = 2}, mesh::Mesh{.pipeline = 2}}) {
    const std::string text = sound(mesh, true);
    EXPECT_NE(text.find("\"version\":4"), std::string::npos);
    const Manifest manifest = parse_manifest("index.h5", text);
    EXPECT_EQ(manifest.rules, (std::vector{optimizer::UpdateRule::adamw, optimizer::UpdateRule::muon}));
    EXPECT_EQ(format_version(manifest), 4);
    EXPECT_EQ(decode(encode(manifest)).rules, manifest.rules);
    const auto changed = [&](const std::string& what, const std::string& instead) {
      std::string other = text;
      return message_of(other.replace(other.find(what), what.size(), instead));
    };
    EXPECT_THAT(changed("\"version\":4", "\"version\":2"),
                testing::AnyOf(HasSubstr("lacks 20 of its 20 elements"), HasSubstr("not of its format version")));
    EXPECT_THAT(changed("\"parameters\":[1]", "\"parameters\":[0]"), HasSubstr("a parameter has two rules"));
    EXPECT_THAT(changed("\"parameters\":[1]", "\"parameters\":[2]"), HasSubstr("out of range"));
    EXPECT_THAT(changed("\"parameters\":[0]", "\"parameters\":[]"), HasSubstr("a parameter has no rule"));
    EXPECT_THAT(changed("\"muon\"", "\"lion\""), HasSubstr("rules.muon is missing"));
    EXPECT_THAT(changed("\"states\":[\"first_moment\"]", "\"states\":[]"), HasSubstr("the states of muon"));
    EXPECT_THAT(message_of(text.substr(0, text.find("\"parameters\":[0]")) + "\"parameters\":[0,1]" +
                           text.substr(text.find("\"parameters\":[0]") + 16)),
                HasSubstr("a parameter has two rules"));
  }
}

TEST(Manifest, OfARunWithoutAPipelineIsWhatEarlierBuildsRead) {
  EXPECT_EQ(sound().find("pipeline"), std::string::npos);
  EXPECT_NE(sound().find("\"version\":2"), std::string::npos);
  EXPECT_EQ(shard_path(3, 1), "shards/dp-00003-tp-01.h5");
}

TEST(Manifest, GoesToOtherRanksAsItIs) {
  for (const mesh::Mesh& mesh : {mesh::Mesh{.shard = 2}, mesh::Mesh{.pipeline = 2}}) {
    Manifest manifest = parse_manifest("index.h5", sound(mesh));
    manifest.state.run_id = "0123456789abcdef";
    manifest.state.skipped_samples = {{.step = 1, .first = 2, .end = 3}};
    manifest.state.tuned_settings = {{"gemm", "at"}};
    const std::string bytes = encode(manifest);
    const Manifest there = decode(bytes);
    std::vector<std::string> files, files_there;
    for (const SavedFile& file : manifest.files) files.push_back(file_to_json(file));
    for (const SavedFile& file : there.files) files_there.push_back(file_to_json(file));
    EXPECT_EQ(to_json(there, files_there), to_json(manifest, files));
    EXPECT_EQ(there.versions, manifest.versions);
    for (std::size_t size = 0; size < bytes.size(); size += 7)
      EXPECT_THROW((void)decode(bytes.substr(0, size)), BugError) << size;
  }
}

TEST(Manifest, IsSharedBySlices) {
  const Manifest manifest = parse_manifest("index.h5", sound());
  const Parts parts(manifest);
  // Two pieces of one slice, of which the part has one copy.
  const Request request{.pieces = {{.parameter = 1, .hyperslab = {.first = 2, .length = 1}},
                                   {.parameter = 1, .hyperslab = {.first = 4, .length = 6}}},
                        .moments = true,
                        .digest_of = 1};
  const Part part = parts.of(decode_request(encode(request)));
  EXPECT_EQ(part.digest, 0xffffffffffffffffULL);
  EXPECT_EQ(part.digest_of_replica, 0U) << "of both ranks, modulo 2^64";
  ASSERT_EQ(part.files.size(), 1U);
  EXPECT_EQ(part.files[0].path, shard_path(0));
  ASSERT_EQ(part.files[0].datasets.size(), 3U);
  const SavedDataset& dataset = part.files[0].datasets[2];
  EXPECT_EQ(dataset.quantity, Quantity{2});
  EXPECT_EQ(dataset.byte_offset, 612);
  ASSERT_EQ(dataset.slices.size(), 1U);
  EXPECT_EQ(dataset.slices[0].parameter, 1);
  EXPECT_EQ(dataset.slices[0].checksums, std::vector<std::uint64_t>{0xabc});
  EXPECT_EQ(encode(decode_part(encode(part))), encode(part));

  const Part first_values = parts.of({.pieces = {{.parameter = 0, .hyperslab = {.length = 1}},
                                                 {.parameter = 1, .hyperslab = {.first = 9, .length = 2}}}});
  ASSERT_EQ(first_values.files.size(), 2U);
  ASSERT_EQ(first_values.files[0].datasets.size(), 1U);
  EXPECT_EQ(first_values.files[0].datasets[0].slices.size(), 2U);
  EXPECT_EQ(first_values.files[1].path, shard_path(1));
  EXPECT_TRUE(parts.of({}).files.empty());
}

/// The elements of a piece, one by one.
std::set<std::int64_t> elements_of(const shard::Hyperslab& piece) {
  std::set<std::int64_t> elements;
  for (std::int64_t run = 0; run < piece.count; ++run)
    for (std::int64_t i = 0; i < piece.length; ++i) elements.insert(piece.first + run * piece.stride + i);
  return elements;
}

TEST(Manifest, LeavesNoSliceOutThatARankNeeds) {
  constexpr std::int64_t columns = 6, rows = 5;
  std::vector<shard::Hyperslab> pieces;
  for (std::int64_t first = 0; first < rows * columns; first += 2)
    for (const std::int64_t length : {1, 4, 13})
      if (first + length <= rows * columns) pieces.push_back({.first = first, .length = length});
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; column += 2)
      for (std::int64_t count = 2; row + count <= rows; ++count)
        pieces.push_back({.first = row * columns + column, .length = 2, .stride = columns, .count = count});
  int apart = 0;
  for (const shard::Hyperslab& a : pieces)
    for (const shard::Hyperslab& b : pieces) {
      std::vector<std::int64_t> common;
      std::ranges::set_intersection(elements_of(a), elements_of(b), std::back_inserter(common));
      if (common.empty())
        apart += may_overlap(a, b) ? 0 : 1;
      else
        ASSERT_TRUE(may_overlap(a, b)) << a.first << " " << b.first;
    }
  EXPECT_GT(apart, 500);
  EXPECT_FALSE(may_overlap({.first = 0, .length = 2, .stride = 6, .count = 5},
                           {.first = 2, .length = 2, .stride = 6, .count = 5}))
      << "the columns of two tensor ranks";
}

TEST(Manifest, IdentifiesItsRunWithoutBeingParsed) {
  Manifest manifest;
  manifest.state.run_id = "0123456789abcdef";
  EXPECT_EQ(run_id_in(to_json(manifest, {})), "0123456789abcdef");
  EXPECT_EQ(run_id_in(sound()), "");
  EXPECT_EQ(run_id_in(with("\"run\":\"\",", "")), "") << "of an earlier build";
  EXPECT_EQ(parse_manifest("index.h5", with("\"run\":\"\",", "")).state.run_id, "");
  EXPECT_EQ(run_id_in("{}"), "");
}

TEST(Manifest, ShowsAnEndInSkippedStepsWithoutBeingParsed) {
  Manifest manifest;
  manifest.state.run_file = R"("skipped_in_a_row":9)";
  EXPECT_EQ(skipped_in_a_row_in(to_json(manifest, {})), 0);
  manifest.state.skipped_in_a_row = 12;
  EXPECT_EQ(skipped_in_a_row_in(to_json(manifest, {})), 12);
  EXPECT_EQ(skipped_in_a_row_in("{}"), 0);
}

TEST(Manifest, HasTheWindowOfSpikesBitForBit) {
  Manifest manifest = parse_manifest("index.h5", sound());
  EXPECT_EQ(manifest.state.spikes, optimizer::SpikeWindow());
  const std::string text = with(R"("losses":[],"grad_norms":[])", R"("losses":[0.1,2],"grad_norms":[1e-17,3.5])");
  const optimizer::SpikeWindow expected{.losses = {0.1, 2}, .grad_norms = {1e-17, 3.5}};
  EXPECT_EQ(parse_manifest("index.h5", text).state.spikes, expected);
  EXPECT_EQ(decode(encode(parse_manifest("index.h5", text))).state.spikes, expected);
  const std::string earlier = with(R"("spike_window":{"losses":[],"grad_norms":[]},)", "");
  EXPECT_EQ(parse_manifest("index.h5", earlier).state.spikes, optimizer::SpikeWindow()) << "of an earlier build";
  EXPECT_THAT(message_of(with(R"("losses":[])", R"("losses":[1])")), HasSubstr("1 losses and 0 gradient norms"));
}

TEST(Manifest, WithNumbersWhoseProductsOrSumsOverflowIsRefused) {
  // 20857 * 823698 = 4 * 2^32 + 2: two ranks in 32 bits, as there are files and digests.
  for (const char* mesh :
       {R"("replicate":20857,"shard":823698,"tensor":1)", R"("replicate":65536,"shard":65537,"tensor":1)",
        R"("replicate":1048576,"shard":1048576,"tensor":1048576)"})
    EXPECT_THAT(message_of(with(R"("replicate":1,"shard":2,"tensor":1)", mesh)), HasSubstr("out of range")) << mesh;
  for (const char* shape : {"[4294967296,4294967296]", "[9007199254740992,2]", "[3037000500,3037000500,2]"})
    EXPECT_THAT(message_of(with("[4,5]", shape)), HasSubstr("too many elements")) << shape;
  EXPECT_THAT(message_of(with("[4,5]", "[9007199254740992]")),
              HasSubstr("the elements of all parameters are too many"));
  EXPECT_THAT(message_of(with("\"bytes\":1000", "\"bytes\":9007199254740992")), HasSubstr("the bytes of all files"));
  for (const char* seed : {"-1", "1e300", "18446744073709551616"})
    EXPECT_NE(message_of(with("\"seed\":0", std::string("\"seed\":") + seed)), "accepted") << seed;
}

TEST(Manifest, OfAnotherFormatOrVersionIsRefused) {
  EXPECT_THAT(message_of(with("\"version\":2", "\"version\":5")), HasSubstr("format version 5"));
  EXPECT_THAT(message_of(with("\"version\":2", "\"version\":4")), HasSubstr("rules is missing"));
  EXPECT_THAT(message_of(with("\"version\":2", "\"version\":3")), HasSubstr("not of its format version"));
  EXPECT_THAT(message_of(with("trireme checkpoint", "something else")), HasSubstr("not a Trireme manifest"));
  EXPECT_THAT(message_of("{}"), HasSubstr("index.h5"));
  EXPECT_THAT(message_of("[]"), HasSubstr("index.h5"));
  EXPECT_THAT(message_of(""), HasSubstr("not valid JSON"));
}

TEST(Manifest, RefusalsNameTheKeyAndWhatIsExpectedThere) {
  const auto refused = [](const std::string& what, const std::string& instead, const std::string& reason) {
    EXPECT_EQ(message_of(with(what, instead)),
              "index.h5: the manifest cannot be used: " + reason + "; use another checkpoint");
  };
  refused("\"step\":7", "\"step\":\"a\\u001b]0;x\"",
          R"(step is "a\u001b]0;x"; expected a whole number from 0 to 9007199254740992)");
  refused("\"step\":7", "\"step\":-7", "step = -7 is out of range; expected a whole number from 0 to 9007199254740992");
  refused("\"step\":7,", "", "step is missing; expected a whole number from 0 to 9007199254740992");
  refused("\"seed\":0", "\"seed\":null", "seed is null; expected a whole number of at least 0");
  refused("\"learning_rate\":0.0", "\"learning_rate\":[]", "learning_rate is a list; expected a number");
  refused("\"taken\":[3,4]", "\"taken\":[3,{}]",
          "taken[1] is an object; expected a whole number from 0 to 9007199254740992");
  refused("\"taken\":[3,4]", "\"taken\":3", "taken is 3; expected a list");
  refused("\"model.layers\":\"1\"", "\"model.layers\":1", "model.model.layers is 1; expected a text");
  refused("\"model.layers\":\"1\"", "\"a\\u001b\":1", "model.a\\x1b is 1; expected a text");
  refused("\"mesh\":{", "\"other\":{", "mesh is missing; expected an object");
  refused("[\"a.weight\",[6]]", "[\"a.weight\"]", "parameters[0][1] is missing; expected a list");
  refused("[\"0000000000000009\"]", "[\"9\"]",
          R"(files[0].datasets[0].slices[0][6][0] is "9"; expected a checksum of 16 hexadecimal digits)");
  refused("\"byte_offset\":100", "\"byte_offset\":1.5",
          "files[0].datasets[0].byte_offset is 1.5; expected a whole number from 0 to 744");
  EXPECT_THAT(message_of("[]"), HasSubstr("its text is a list; expected an object"));
}

/// Every single value of another type, or missing, is refused without words of the JSON library.
TEST(Manifest, ValuesOfAnotherTypeAreRefusedInWordsOfTheFormat) {
  const std::string text = sound();
  int refusals = 0;
  for (std::size_t at = 0; (at = text.find_first_of(":,[", at)) != std::string::npos; ++at)
    for (const char* instead : {"null", "true", "\"x\"", "-1.5", "[]", "{}"}) {
      const std::size_t end = text.find_first_of(",]}", at + 1);
      const std::string message = message_of(text.substr(0, at + 1) + instead + text.substr(end));
      EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
      refusals += message == "accepted" ? 0 : 1;
    }
  EXPECT_GT(refusals, 500);
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
  EXPECT_THAT(message_of(with("[1,0,10,0,1,20,", "[1,0,10,0,1,60,")), HasSubstr("out of range"));
  EXPECT_THAT(message_of(with("[1,0,10,0,1,20,", "[7,0,10,0,1,20,")), HasSubstr("out of range"));
  EXPECT_THAT(message_of(with("[1,10,10,0,1,20,", "[1,15,10,0,1,20,")), HasSubstr("out of range"));
  EXPECT_THAT(message_of(with("[4,5]", "[4000000000000,5000000000000]")), HasSubstr("too many elements"));
  EXPECT_THAT(message_of(with("[4,5]", "[-4,-5]")), HasSubstr("out of range"));
}

TEST(Manifest, WithElementsMissingOrTwiceIsRefused) {
  EXPECT_THAT(message_of(with("[1,0,10,0,1,20,", "[1,0,9,0,1,20,")), HasSubstr("b.weight lacks 1 of its 20 elements"));
  EXPECT_THAT(message_of(with("[1,0,10,0,1,20,", "[1,0,11,0,1,20,")),
              HasSubstr("b.weight has an overlap at element 10"));
  EXPECT_THAT(message_of(with("[\"0000000000000009\"]", "[]")), HasSubstr("0 checksums instead of 1"));
  EXPECT_THAT(message_of(with("\"shard\":2", "\"shard\":3")), HasSubstr("another number of ranks"));
  EXPECT_THAT(message_of(with("\"step\":7", "\"step\":7,\"step\":8")), HasSubstr("twice"));
}

/// The matrix of `sound` by two tensor ranks: columns 0 to 2 of every row, and 2 to 5.
std::string by_columns() {
  std::string text = sound();
  const auto replace_all = [&](const std::string& what, const std::string& instead) {
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + instead.size()))
      text.replace(at, what.size(), instead);
  };
  replace_all("[1,0,10,0,1,", "[1,0,2,5,4,");
  replace_all("[1,10,10,0,1,", "[1,2,3,5,4,");
  return text;
}

TEST(Manifest, HoldsColumnsOfAMatrixAsOneSlice) {
  const Manifest manifest = parse_manifest("index.h5", by_columns());
  EXPECT_EQ(manifest.files[0].datasets[0].slices[1].hyperslab,
            (shard::Hyperslab{.first = 0, .length = 2, .stride = 5, .count = 4}));
  EXPECT_EQ(manifest.files[1].datasets[0].slices[0].hyperslab.end(), 20);
  const auto changed = [](const std::string& what, const std::string& instead) {
    std::string text = by_columns();
    return message_of(text.replace(text.find(what), what.size(), instead));
  };
  EXPECT_THAT(changed("[1,0,2,5,4,", "[1,0,3,5,4,"), HasSubstr("b.weight has an overlap at element 2"));
  EXPECT_THAT(changed("[1,0,2,5,4,", "[1,0,2,5,3,"), HasSubstr("b.weight lacks 2 of its 20 elements"));
  EXPECT_THAT(changed("[1,2,3,5,4,", "[1,3,3,5,4,"), HasSubstr("not parts of its rows"));
  EXPECT_THAT(changed("[1,2,3,5,4,", "[1,7,3,5,4,"), HasSubstr("not parts of its rows"));
  EXPECT_THAT(changed("[1,2,3,5,4,", "[1,2,3,4,4,"), HasSubstr("not parts of its rows"));
  EXPECT_THAT(changed("[1,2,3,5,4,", "[1,2,3,5,9000000000000000000,"), HasSubstr("out of range"));
}

TEST(Manifest, NamesTheFilesOfGroupsOfRanks) {
  std::string text = with("\"ranks_per_file\":1", "\"ranks_per_file\":2");
  EXPECT_THAT(message_of(text), HasSubstr("than there are files"));
  EXPECT_THAT(message_of(with("\"ranks_per_file\":1", "\"ranks_per_file\":0")), HasSubstr("out of range"));
  EXPECT_EQ(files_of({.replicate = 2, .shard = 3, .tensor = 2}, 4), 4);
  EXPECT_EQ(files_of({.replicate = 2, .shard = 3, .tensor = 2}, 100), 2);
  EXPECT_EQ(files_of({.replicate = 2, .shard = 3, .tensor = 2}, 1), 12);
}

}  // namespace
}  // namespace trireme::checkpoint::manifest_test

// Fault, loading: inconsistent manifests -> refused; nothing is allocated by their numbers
// Fault, loading: a manifest value is missing, of another type, out of range -> refused by key, with found and allowed
//   values
// Fault, loading: tensors missing, too many, renamed, of another shape -> refused, each listed

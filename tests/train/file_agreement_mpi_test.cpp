// SPDX-License-Identifier: Apache-2.0
//
// Files with equal paths but different contents on the ranks' nodes are found before the training. Each rank has a
// separate working directory with copies of all files, like nodes with local disks.
//
// ranks: 2 3
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "data/token_writer.hpp"
#include "support/shared_directory.hpp"
#include "train/file_agreement.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::train::file_agreement_mpi_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string tokens(std::size_t count, char other = 0) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += {static_cast<char>(i * 7 + static_cast<std::size_t>(other)), '\0'};
  return bytes;
}

/// Changes one byte; in a file of any size.
void change_byte(const std::string& path, std::size_t at) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

/// Changes all bytes of a part of a file.
void change_part(const std::string& path, std::size_t begin, std::size_t bytes) {
  std::string all = bytes_of(path);
  for (std::size_t i = begin; i < std::min(begin + bytes, all.size()); ++i) all[i] = static_cast<char>(all[i] ^ 1);
  write(path, all);
}

void write_weights(const std::string& directory) {
  config::Model sizes{.vocab_size = 64, .hidden_size = 8, .intermediate_size = 12, .layers = 2, .heads = 2};
  const model::Model model = model::build(sizes);
  std::vector<float> values;
  huggingface::write_huggingface(directory, model, {.most_file_bytes = Bytes{3000}}, [&](model::ParamRef ref) {
    values.assign(static_cast<std::size_t>(model[ref].full_elements()), 0.5F);
    return std::span<const float>(values);
  });
}

void write_all() {
  write("train.bin", tokens(9000));
  write("masked.bin", tokens(500));
  write("masked.bin.mask", std::string(500, '\1'));
  write("masked.bin.meta", std::string(300, ' '));
  write("masked.bin.ends", std::string(160, '\2'));
  write("large.bin", tokens(5 << 20));  // 10 MiB: sampled
  write("valid.bin", tokens(700, 3));
  data::TokenWriter pair("pair.idx", 257);
  for (std::int32_t document = 0; document < 9; ++document) {
    pair.append(std::vector<std::int32_t>(50, document));
    pair.end_document();
  }
  pair.finish();
  write_weights("weights");
}

class FileAgreement : public testing::Test {
 protected:
  FileAgreement() {
    fs::create_directory(own());
    fs::current_path(own());
    write_all();
    config_.model.from = "weights";
    config_.data.train = {{.path = "train.bin"}, {.path = "masked.bin"}, {.path = "large.bin"}, {.path = "pair.idx"}};
    config_.data.validation = {{.path = "valid.bin"}};
    config_.train.eval_every = 5;
  }
  ~FileAgreement() override { fs::current_path(before_); }

  [[nodiscard]] std::string own() const { return directory_.path() + "/" + std::to_string(world_.rank()); }

  /// The exit code, 0 for none, and the message, alike on all ranks.
  std::string outcome() {
    try {
      const std::string list = mpi::on_first_rank(world_, "list files", [&] { return encode(input_paths(config_)); });
      agree_on_input_files(world_, decode_inputs(list), 1e-6, [] {});
      return "0";
    } catch (const mpi::CollectiveError& error) {
      EXPECT_EQ(mpi::broadcast_text(world_, error.what()), error.what());
      return std::to_string(static_cast<int>(error.code())) + " " + error.what();
    }
  }

  /// With `change` made on the last rank, or on another one; everything is whole again afterwards.
  std::string with(const std::function<void()>& change, int rank = -1) {
    const int changed = rank < 0 ? world_.size() - 1 : rank;
    if (world_.rank() == changed) change();
    const std::string said = outcome();
    if (world_.rank() == changed) {
      fs::current_path(before_);
      fs::remove_all(own());
      fs::create_directory(own());
      fs::current_path(own());
      write_all();
    }
    return said;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::SharedDirectory directory_{world_};
  fs::path before_ = fs::current_path();
  config::RunConfig config_;
};

TEST_F(FileAgreement, NamesRankAndFileOfEveryCopyThatDiffers) {
  const std::string last = "[rank " + std::to_string(world_.size() - 1);
  EXPECT_EQ(outcome(), "0");
  EXPECT_THAT(with([] { fs::resize_file("train.bin", 9000); }),
              AllOf(HasSubstr("3 " + last), HasSubstr("token file train.bin"), HasSubstr("9000 bytes here, 18000")));
  EXPECT_THAT(with([] { write("train.bin", tokens(9000, 5)); }),
              AllOf(HasSubstr("3 " + last), HasSubstr("train.bin"), HasSubstr("18000 bytes, is the same")));
  EXPECT_THAT(with([] { change_byte("train.bin", 11111); }), HasSubstr("3 " + last));
  EXPECT_THAT(with([] { fs::remove("train.bin"); }), AllOf(HasSubstr("3 " + last), HasSubstr("does not exist")));
  EXPECT_THAT(with([] { fs::remove("train.bin"), fs::create_directory("train.bin"); }),
              AllOf(HasSubstr("3 " + last), HasSubstr("train.bin is a directory")));
  EXPECT_THAT(with([] { change_byte("masked.bin.mask", 7); }), HasSubstr("masked.bin.mask is not the one"));
  EXPECT_THAT(with([] { change_byte("masked.bin.ends", 7); }), HasSubstr("masked.bin.ends is not the one"));
  EXPECT_THAT(with([] { fs::remove("masked.bin.meta"); }), HasSubstr("masked.bin.meta does not exist"));
  EXPECT_THAT(with([] { fs::remove("masked.bin.mask"); }), HasSubstr("masked.bin.mask does not exist"));
  EXPECT_THAT(with([] { change_part("large.bin", 3 << 20, 1 << 20); }), HasSubstr("large.bin is not the one"));
  EXPECT_THAT(with([] { change_byte("pair.idx", bytes_of("pair.idx").size() - 1); }), HasSubstr("pair.idx is not the"));
  EXPECT_THAT(with([] { change_byte("pair.bin", 100); }), HasSubstr("pair.bin is not the one"));
  EXPECT_THAT(with([] { fs::resize_file("valid.bin", 200); }), HasSubstr("3 " + last));
  // Rank 0 would train without a file that it lacks.
  for (const char* more : {"train.bin.mask", "train.bin.meta"})
    EXPECT_THAT(with([&] { write(more, "x"); }), AllOf(HasSubstr("3 " + last), HasSubstr(more)));
  for (const char* lost : {"masked.bin.mask", "masked.bin.meta", "pair.idx"})
    EXPECT_THAT(with([&] { fs::remove(lost); }, 0),
                AllOf(HasSubstr("3 "), HasSubstr(lost),
                      testing::AnyOf(HasSubstr("lies here, but not on rank 0"), HasSubstr("pair.idx does not exist"))));
  config_.data.train.back().path = "pair.bin";  // without its index a raw file
  EXPECT_THAT(with([] { fs::remove("pair.idx"); }, 0), HasSubstr("token file pair.idx lies here, but not on rank 0"));
  EXPECT_THAT(with([] { write("train.idx", "x"); }), AllOf(HasSubstr("3 " + last), HasSubstr("train.idx lies here")));
  config_.data.format = config::TokenFormat::uint16;
  EXPECT_EQ(with([] { write("train.idx", "x"); }), "0") << "read by no rank";
  config_.data.format = config::TokenFormat::automatic;
  config_.train.eval_every = 0;
  EXPECT_EQ(with([] { fs::remove("valid.bin"); }), "0") << "read by no rank";
}

TEST_F(FileAgreement, ComparesTheWeightsThatEveryRankReads) {
  const std::vector<InputPath> inputs = input_paths(config_);
  std::string second;
  for (const InputPath& input : inputs)
    if (input.path.find("model-00002-of") != std::string::npos) second = input.path;
  ASSERT_FALSE(second.empty()) << "several weight files";
  EXPECT_THAT(with([&] { change_byte(second, bytes_of(second).size() - 1); }),
              AllOf(HasSubstr("4 [rank"), HasSubstr("weight file " + second)));
  EXPECT_THAT(with([&] { fs::remove(second); }), AllOf(HasSubstr("4 [rank"), HasSubstr(second + " does not exist")));
  EXPECT_THAT(with([] { write("weights/config.json", bytes_of("weights/config.json") + "\n"); }),
              AllOf(HasSubstr("4 [rank"), HasSubstr("weights/config.json")));
  EXPECT_THAT(with([] { change_byte("weights/model.safetensors.index.json", 4); }), HasSubstr("4 [rank"));
  // transformers and HfDirectory take a single file before an index.
  EXPECT_THAT(with([&] { fs::copy_file(second, "weights/model.safetensors"); }),
              AllOf(HasSubstr("4 [rank"), HasSubstr("weights/model.safetensors lies here, but not on rank 0")));
}

TEST_F(FileAgreement, ReportsThatRankZeroCannotReadOrDiffers) {
  EXPECT_THAT(with([] { fs::remove("large.bin"); }, 0), HasSubstr("3 token file large.bin does not exist"));
  const std::string odd = with([] { write("train.bin", tokens(9000, 5)); }, 0);
  EXPECT_THAT(odd, HasSubstr("3 [rank 1"));
  if (world_.size() > 2) {
    EXPECT_THAT(odd, HasSubstr("2 ranks found a difference"));
  }
}

TEST_F(FileAgreement, ReadsOnceWhereRanksOfANodeSeeTheSameFiles) {
  EXPECT_EQ(mpi::probe_file_view(world_).of_first_rank, world_.rank() == 0);
  fs::current_path(directory_.path() + "/0");
  const mpi::FileView view = mpi::probe_file_view(world_);
  EXPECT_TRUE(view.of_first_rank);
  EXPECT_EQ(view.ranks, world_.size());
  EXPECT_EQ(view.place, world_.rank());
  EXPECT_EQ(outcome(), "0");
  MPI_Barrier(world_.handle());
}

TEST(CopyMismatch, IsEmptyForEqualDigestsOnly) {
  const InputPath input{.path = "d.bin"};
  EXPECT_EQ(copy_mismatch(input, {.bytes = 5, .hash = 6}, {.bytes = 5, .hash = 6}), "");
  EXPECT_THAT(copy_mismatch(input, {.bytes = 4, .hash = 6}, {.bytes = 5, .hash = 6}),
              HasSubstr("4 bytes here, 5 bytes on rank 0"));
  EXPECT_THAT(copy_mismatch(input, {.bytes = 5, .hash = 7}, {.bytes = 5, .hash = 6}), HasSubstr("contents differ"));
}

TEST(BlocksOfEach, BoundsWhatIsReadOfManyFiles) {
  EXPECT_EQ(blocks_of_each(0), 256);
  EXPECT_EQ(blocks_of_each(16), 256);
  EXPECT_EQ(blocks_of_each(17), 240);
  EXPECT_EQ(blocks_of_each(1'000'000), 16);
}

TEST(DigestOf, HasTheWholeHeaderOfASafetensorsFile) {
  const test::TemporaryDirectory directory;
  const InputPath input{.kind = InputPath::Kind::weights, .path = directory / "w.safetensors"};
  const std::uint64_t length = 1 << 20;
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += std::string(length + (64 << 20), 'x');
  write(input.path, bytes);
  const FileDigest before = digest_of(input, 16);
  change_byte(input.path, 700'000);
  EXPECT_NE(digest_of(input, 16), before);
}

}  // namespace
}  // namespace trireme::train::file_agreement_mpi_test

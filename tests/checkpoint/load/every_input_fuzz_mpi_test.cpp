// SPDX-License-Identifier: Apache-2.0
//
// Damaged files of every input format: each is refused with a message, or read. The manifest and index of checkpoints,
// run files, CSV and config.json also have separate fuzzers. Runs for 20 random seconds; with TRIREME_TEST_LONG=1 for
// eight minutes.
//
// ranks: 1
//
// labels: slow
//
// timeout: 600
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/files.hpp"
#include "support/fuzz.hpp"
#include "trireme/checkpoint/best.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/config/load.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/data/tokenize.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/huggingface/safetensors.hpp"
#include "trireme/planner/time/machine.hpp"
#include "trireme/planner/validate/validate.hpp"
#include "trireme/report/run_record.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::checkpoint::every_input_fuzz_mpi_test {
namespace {

constexpr int formats = 13;

class EveryInput : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) const {
    std::filesystem::remove(dir_ / name);
    data::test::write_file(dir_ / name, bytes);
  }
  template <class Read>
  static void fuzz(const std::string& format, const std::vector<std::string>& samples, Read&& read) {
    test::fuzz(format, samples, (test::tries_everything() ? 480.0 : 20.0) / formats, read);
  }

  const test::TemporaryDirectory dir_;
};

const std::string run_file = R"([run]
name = "small"
[model]
vocab_size = 257
hidden_size = 32
intermediate_size = 64
layers = 2
heads = 4
kv_heads = 2
[data]
train = [{path = "a.bin", weight = 2}, {path = "b.idx", weight = 1.5}]
validation = "c.bin"
seq_len = 32
tokenizer = "bytes"
[batch]
global = 16
micro = 2
[optimizer]
lr = 1e-2
no_decay = ["*norm*"]
[train]
steps = 6
)";

TEST_F(EveryInput, RunFiles) {
  fuzz("run.toml", {run_file, config::print_run_file(config::parse_run_file(run_file, "run.toml"))},
       [](const std::string& bytes) { (void)config::resolve(config::parse_run_file(bytes, "run.toml"), 2); });
}

TEST_F(EveryInput, Machines) {
  fuzz("machine.toml",
       {planner::print_machine(planner::load_machine("h100")), planner::print_machine(planner::load_machine("local"))},
       [](const std::string& bytes) { (void)planner::parse_machine(bytes, "machine.toml"); });
}

TEST_F(EveryInput, TablesOfMeasuredRuns) {
  const std::string csv =
      "source,framework,model,gpu,n_gpus,precision,seq_len,gbs_seqs,mbs,grad_acc,dp,shard,tp,pp,vp,cp,ep,recompute,"
      "layers,hidden,tok_s_gpu,mem_gb,intermediate,heads,kv_heads,vocab,tied,replicas,gpus_per_node,use,note\n"
      "s,t,m,H100 SXM,16,bf16,4096,64,2,2,16,HSDP,1,1,1,1,1,full,4,512,90000,20,1024,8,8,32000,1,2,8,calibrate,GiB\n";
  fuzz("csv", {csv}, [](const std::string& bytes) { (void)planner::validate(bytes, "f.csv"); });
}

/// Reads every token and every mask byte of a file.
void read_tokens(const std::string& path, config::TokenFormat format) {
  const std::vector<config::TokenSource> sources{{.path = path}};
  const auto sets = data::open_datasets(sources, false, format, 8, 257);
  std::vector<std::int32_t> tokens(9);
  std::vector<std::uint8_t> mask(8);
  for (const data::Dataset& set : sets) {
    ASSERT_LT(set.samples(), 1 << 20);
    for (std::int64_t i = 0; i < set.samples(); ++i) {
      set.read(i, tokens);
      for (const std::int32_t token : tokens) EXPECT_TRUE(token >= 0 && token < 257) << token;
      if (set.masked()) set.read_mask(i, mask);
    }
  }
}

TEST_F(EveryInput, TokenFilesTheirIndexesAndMasks) {
  const auto bytes_tokenizer = tokenizer::make_tokenizer("bytes");
  put("text.jsonl", R"({"p": "a question of ships", "r": "an answer of oars"}
{"p": "another", "r": "one"}
{"p": "third question", "r": "third answer, which is longer than the others are"}
)");
  const data::TokenizeOptions options{.field = "p", .response = "r"};
  for (const char* output : {"raw.bin", "indexed.idx"})
    (void)data::tokenize_files(*bytes_tokenizer, {dir_ / "text.jsonl"}, dir_ / output, options);
  const auto target = [&](const char* name, const std::string& read, config::TokenFormat format) {
    const std::string sound = data::test::file_bytes(dir_ / name);
    fuzz(name, {sound}, [&](const std::string& bytes) {
      put(name, bytes);
      read_tokens(dir_ / read, format);
    });
    put(name, sound);
  };
  target("raw.bin", "raw.bin", config::TokenFormat::automatic);
  target("raw.bin.mask", "raw.bin", config::TokenFormat::automatic);
  target("indexed.idx", "indexed.idx", config::TokenFormat::automatic);
}

TEST_F(EveryInput, Safetensors) {
  {
    huggingface::SafetensorsWriter writer(
        dir_ / "sound", {{.name = "a.weight", .shape = {4, 3}, .dtype = DType::fp32}, {.name = "b", .shape = {6}}});
    writer.append(std::vector<float>(18, 0.5F));
    writer.finish();
  }
  fuzz("safetensors", {data::test::file_bytes(dir_ / "sound")}, [&](const std::string& bytes) {
    put("x.safetensors", bytes);
    const auto file = huggingface::SafetensorsFile::open(dir_ / "x.safetensors");
    for (const auto& [name, info] : file.tensors()) {
      ASSERT_LT(info.elements(), 1 << 20);
      std::vector<float> values(static_cast<std::size_t>(info.elements()));
      if (info.readable()) file.read_fp32(name, {.begin = 0, .end = info.elements()}, values);
    }
  });
}

TEST_F(EveryInput, ModelConfigs) {
  const std::string config =
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257, "hidden_size": 32,
 "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
 "hidden_act": "silu", "rope_scaling": {"rope_type": "linear", "factor": 2.0}})";
  fuzz("config.json", {config},
       [](const std::string& bytes) { (void)huggingface::parse_hf_config(bytes, "config.json"); });
}

TEST_F(EveryInput, Tokenizers) {
  const nlohmann::json model = {
      {"added_tokens", {{{"id", 3}, {"content", "<end>"}, {"special", true}}}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
  put("tokenizer_config.json", R"({"eos_token": "<end>"})");
  fuzz("tokenizer.json", {model.dump(1), model.dump()}, [&](const std::string& bytes) {
    put("tokenizer.json", bytes);
    const auto made = tokenizer::make_tokenizer("hf:" + (dir_ / "tokenizer.json"));
    std::vector<std::int32_t> ids = made->encode("ab ba, ship\n");
    for (const std::int32_t id : ids) EXPECT_TRUE(id >= 0 && id < made->vocab_size()) << id;
    (void)made->decode(ids);
  });
}

TEST_F(EveryInput, HistoriesOfRuns) {
  const std::string lines =
      R"({"step":1,"time":1.5,"loss":5.5,"grad_norm":1.0,"lr":0.01,"tokens":512,"mfu":null,"gemm":"onednn","skipped":false,
"memory_peak_bytes":{"device":{"activations":100,"total":200},"rss":1000},"comm_calls":{"dp":{"all_reduce":2}}})";
  std::string one = lines;
  std::erase(one, '\n');
  const std::string history = one + "\n{\"step\":2,\"loss\":4.5,\"tokens\":1024}\n{\"step\":2,\"eval_loss\":4.25}\n";
  fuzz("metrics.jsonl", {history}, [&](const std::string& bytes) {
    put("metrics.jsonl", bytes);
    (void)report::read_run(dir_.path());
  });
}

TEST_F(EveryInput, Traces) {
  const std::string trace =
      R"({"traceEvents":[{"name":"forward b0","cat":"op","ph":"X","ts":1.5,"dur":3.0,"pid":0,"tid":1,
"args":{"bytes":12}},{"name":"memory","ph":"C","ts":2,"pid":0,"args":{"parameters":100}},
{"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"compute"}}]})";
  fuzz("trace.json", {trace}, [](const std::string& bytes) {
    report::RunRecord run;
    report::read_trace(run, bytes, "trace-rank0.json", true);
  });
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(::deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(text.size() + 1000, '\0');
  std::string in = text;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST_F(EveryInput, TextsAndArchives) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += fmt::format("{{\"text\": \"document {} of the ship\", \"n\": [{}, 1.5]}}\n", i, i);
  const auto bytes_tokenizer = tokenizer::make_tokenizer("bytes");
  const auto tokenize = [&](const std::string& bytes) {
    put("text", bytes);
    (void)data::tokenize_files(*bytes_tokenizer, {dir_ / "text"}, dir_ / "out.bin", {.field = "text"});
  };
  fuzz("lines.jsonl", {lines}, tokenize);
  fuzz("lines.jsonl.gz", {gzip(lines)}, tokenize);
  fuzz("lines.jsonl.zst", {zstd(lines)}, tokenize);
}

TEST_F(EveryInput, MarksOfTheBestCheckpoint) {
  std::filesystem::create_directory(dir_ / "step-00000002");
  const std::string mark = R"({"step":2,"eval_loss":3.5,"checkpoint":"step-00000002"})";
  for (const std::string& damage : {mark + std::string(5000, '\0'), std::string(), std::string("{")}) {
    put("best.json", damage);
    EXPECT_FALSE(find_best(dir_.path(), 9)) << "damage is no reason to stop a run";
  }
  test::Mutation mutation(test::fuzz_seed());
  for (int trial = 0; trial < 2000; ++trial) {
    put("best.json", mutation.of(mark));
    EXPECT_NO_THROW((void)find_best(dir_.path(), 9)) << "seed " << test::fuzz_seed() << ", input " << trial;
  }
}

}  // namespace
}  // namespace trireme::checkpoint::every_input_fuzz_mpi_test

// Fault, files: damaged files of every input format -> accepted or refused, soon, in little memory (20 seconds;
//   `--long`: eight minutes)

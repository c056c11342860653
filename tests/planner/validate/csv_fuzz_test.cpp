// SPDX-License-Identifier: Apache-2.0
// Damaged tables of measured runs: one error with file, line and column, or a report with numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "planner/damaged.hpp"
#include "trireme/base/error.hpp"
#include "trireme/planner/validate/validate.hpp"

namespace trireme::planner::csv_fuzz_test {
namespace {

const std::string header =
    "source,framework,model,gpu,n_gpus,precision,seq_len,gbs_seqs,mbs,grad_acc,dp,shard,tp,pp,vp,cp,ep,recompute,"
    "layers,"
    "hidden,tok_s_gpu,mem_gb,intermediate,heads,kv_heads,vocab,tied,replicas,gpus_per_node,use,note\n";
const std::vector<std::string> rows = {
    "s,t,m,H100 SXM 500W,8,bf16,4096,,2,1,8,FSDP,1,1,1,1,1,none,32,4096,6000,60,14336,32,8,128256,,,,,\n",
    "s,t,m,H100 SXM,16,bf16,4096,64,2,2,16,HSDP,1,1,1,1,1,full,4,512,90000,20,1024,8,8,32000,1,2,8,calibrate,GiB\n",
    "s,t,m,H100 SXM,16,bf16,4096,64,2,4,8,FSDP,2,1,1,1,1,selective op,4,512,90000,20,1024,8,8,32000,1,1,8,,\n",
    "s,nanotron,1.34B-llama,H100 SXM EFA,64,bf16,4096,,1,8,4,ZeRO-1,4,4,1,1,1,none,16,2048,7000,,,,,,,,,,\n",
    "s,Megatron,GPT3-175B,H100 SXM,128,bf16,2048,,1,32,4,ZeRO-0,8,4,6,1,1,none,96,12288,700,,,,,,,,,,\"a, b\"\n"};

std::string sound() {
  std::string csv = header;
  for (const std::string& row : rows) csv += row;
  return csv;
}

/// Whether it was predicted; else it is an error in words.
bool predicted(const std::string& csv, bool fit = false) {
  static const std::regex one_line_with_place(R"(f\.csv:[1-9]\d*:[1-9]\d*: [^\n]+)");
  static const std::regex no_number(R"((tokens/s|GB|predicted|error|median|p90|largest) [-+]?(nan|inf))");
  try {
    const std::string report = validate(csv, "f.csv", fit);
    EXPECT_FALSE(std::regex_search(report, no_number)) << report;
    return true;
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::regex_match(error.what(), one_line_with_place)) << error.what();
    return false;
  }
}

TEST(CsvFuzz, IsAnErrorWithItsPlaceOrAReportWithNumbers) {
  ASSERT_TRUE(predicted(sound()));
  constexpr unsigned rounds = 400;
  int reports = 0, errors = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    Damage damage(round);
    // Files of one row take a fifth of the time of all rows; both are damaged.
    std::string csv = round % 10 == 0 ? sound() : header + rows[round % rows.size()];
    for (std::size_t times = 1 + damage.below(3); times > 0; --times) csv = damage.of(csv, ",");
    SCOPED_TRACE(csv);
    ++(predicted(csv) ? reports : errors);
    if (HasFailure()) break;
  }
  EXPECT_GT(reports, 50);
  EXPECT_GT(errors, 100);
}

/// Every number of every row, by every nonsense that is a number.
TEST(CsvFuzz, ExtremeNumbersOverflowNowhere) {
  for (const char* number : {"0", "1e7", "0.3", "2147483648"}) {
    for (const std::string& row : rows) {
      for (std::size_t begin = 0; begin < row.size(); begin = row.find(',', begin) + 1) {
        if (row[begin] >= '0' && row[begin] <= '9') {
          std::string csv = header + row;
          csv.replace(header.size() + begin, row.find_first_of(",\n", begin) - begin, number);
          SCOPED_TRACE(csv);
          (void)predicted(csv);
          if (HasFailure()) return;
        }
        if (row.find(',', begin) == std::string::npos) break;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::planner::csv_fuzz_test

// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/validate/validate.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/planner/time/percentiles.hpp"
#include "trireme/planner/validate/fit.hpp"

namespace trireme::planner::validate_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* header =
    "source,framework,model,gpu,n_gpus,precision,seq_len,gbs_seqs,mbs,grad_acc,dp,shard,tp,pp,recompute,layers,hidden,"
    "tok_s_gpu,mem_gb,intermediate,heads,kv_heads,vocab,use,note\n";

std::string row(const std::string& shard, double rate, const std::string& use = "", int micro = 2,
                const std::string& model = "m") {
  return fmt::format("s,t,{},H100 SXM,8,bf16,4096,,{},1,8,{},1,1,none,32,4096,{},,14336,32,8,128256,{},\"a, note\"\n",
                     model, micro, shard, rate, use);
}

std::string error_of(const std::string& text) {
  try {
    (void)validate(text, "f.csv");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Validate, NonsenseIsOneErrorWithLineAndColumn) {
  EXPECT_EQ(error_of(""), "f.csv:1:1: empty; expected a line with the names of the columns");
  EXPECT_THAT(error_of("model,gpu\n"), HasSubstr("f.csv:1:1: missing columns: n_gpus, seq_len"));
  EXPECT_THAT(error_of(std::string(header) + "a,b\n"), HasSubstr("f.csv:2:3: 2 fields, but the header has 25 columns"));
  EXPECT_THAT(error_of(std::string(header) + row("FSDP", 6000).replace(15, 1, "x")),
              HasSubstr("f.csv:2:16: n_gpus: expected a number of at least 0, found \"x\""));
  EXPECT_THAT(error_of(std::string(header) + "\"a\n"), HasSubstr("f.csv:2:1: a quote that is not closed"));
  EXPECT_THAT(error_of("a,a\n"), HasSubstr("f.csv:1:3: column a twice"));
  EXPECT_THAT(error_of(std::string(header) + row("FSDP", -5)),
              HasSubstr(": tok_s_gpu: expected a number of at least 0, found \"-5\""));
}

TEST(Validate, LeavesOutWhatItCannotPredictByName) {
  std::string unknown = row("FSDP", 6000, "", 2, "mystery");
  unknown.replace(unknown.find("14336"), 5, "");
  const std::string text =
      validate(header + unknown + row("FSDQ", 6000) + row("ZeRO-1", 7000) + row("ZeRO-1", 6000), "f");
  EXPECT_THAT(text, HasSubstr("line 2: mystery: left out: no sizes for mystery"));
  EXPECT_THAT(text, HasSubstr("line 4: m on 8"));
  EXPECT_THAT(text, HasSubstr("line 5: m: left out: slower of two equal runs"));
  EXPECT_THAT(text, HasSubstr("ZeRO-1: 1 rows, tokens/s median "));
}

/// Rows that are the model's own predictions on a machine 20% slower: one row calibrates, the others are predicted.
TEST(Validate, ARowThatCalibratesSetsTheRateOfItsSource) {
  std::string csv = header, plain = header;
  for (const int micro : {1, 2, 4}) {
    const auto rows = read_published(header + row("FSDP", 1000, "", micro), "f");
    Fleet fleet{.machine = *machine_of(rows.front()), .trainer = trainer_of(rows.front())};
    fleet.machine = with_compute_rate(fleet.machine, 0.8);
    const double rate = predicted_rate(rows.front(), fleet);
    csv += row("FSDP", rate, micro == 2 ? "calibrate" : "", micro);
    plain += row("FSDP", rate, "", micro);
  }
  EXPECT_THAT(validate(csv, "f"), HasSubstr("FSDP and HSDP: 2 rows, tokens/s median 0.0%"));
  EXPECT_THAT(validate(plain, "f"), HasSubstr("without calibration 0% of the rows within 15%"));
}

/// The fit finds the numbers that made the rows, but for what they do not determine.
TEST(Fit, PredictsWhatItWasNotFittedOn) {
  std::string csv = header;
  for (const int micro : {1, 2, 4, 8}) csv += row("ZeRO-1", 1000, "", micro) + row("ZeRO-0", 1000, "", micro);
  auto rows = read_published(csv, "f");
  const Fleet start{.machine = *machine_of(rows.front()), .trainer = trainer_of(rows.front())};
  Fleet truth = start;
  truth.machine.products.back().rate *= 0.9;
  truth.machine.memory_bandwidth *= 0.8;
  for (PublishedRow& r : rows) r.tokens_per_second_per_gpu = predicted_rate(r, truth);
  const Fleet fleet = fitted(start, {rows.begin(), rows.begin() + 4});
  for (const PublishedRow& r : rows)
    EXPECT_NEAR(predicted_rate(r, fleet) / r.tokens_per_second_per_gpu, 1, 0.01) << r.micro;
}

TEST(PublishedStep, AccumulationAddsMicrobatchesAndNothingElse) {
  auto rows = read_published(header + row("ZeRO-1", 1000), "f");
  const Machine machine = *machine_of(rows.front());
  const auto step = [&](double accumulation) {
    rows.front().accumulation = accumulation;
    return published_step(rows.front(), machine, trainer_of(rows.front()));
  };
  EXPECT_NEAR(step(9) - step(8), step(2) - step(1), 1e-12);
}

}  // namespace
}  // namespace trireme::planner::validate_test

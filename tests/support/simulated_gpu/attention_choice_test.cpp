// SPDX-License-Identifier: Apache-2.0
//
// src/kernels/cuda/attention_choice.cpp: which library a run takes, between two whose behaviour the test sets.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "attention.hpp"
#include "trireme/kernels/attention_library.hpp"

namespace trireme::kernels {
namespace {

using test::gpu::cudnn_on_trial;
using test::gpu::flash_on_trial;
using namespace std::chrono_literals;

/// Too long for the comparison with dense attention.
const AttentionShape longer{1, 400, 4, 2, 16};
const AttentionShape shorter{2, 24, 4, 2, 16};

struct AttentionChoice : testing::Test {
  void SetUp() override { flash_on_trial = cudnn_on_trial = {}; }
  void TearDown() override {
    SetUp();
    at::globalContext().setDeterministicAlgorithms(false, false);
  }
};

TEST_F(AttentionChoice, IsTheFasterOne) {
  flash_on_trial.delay = 20ms;
  EXPECT_EQ(measure_attention(shorter), AttentionLibrary::cudnn);
  flash_on_trial.delay = 0ms;
  cudnn_on_trial.delay = 20ms;
  EXPECT_EQ(measure_attention(shorter), AttentionLibrary::flash);
}

TEST_F(AttentionChoice, IsNeverOneThatIsWrongOrRefuses) {
  flash_on_trial = {.wrong_from = 1};
  EXPECT_EQ(measure_attention(shorter), AttentionLibrary::cudnn);
  flash_on_trial = {.refuses = true};
  EXPECT_EQ(measure_attention(shorter), AttentionLibrary::cudnn);
  cudnn_on_trial = {.wrong_from = 1};
  EXPECT_EQ(measure_attention(shorter), AttentionLibrary::dense);
  flash_on_trial = {.delay = 20ms};
  EXPECT_EQ(measure_attention(shorter), AttentionLibrary::flash);
}

TEST_F(AttentionChoice, ComparesTheLibrariesWithEachOtherAtTheRunsShape) {
  flash_on_trial.delay = 60ms;
  EXPECT_EQ(measure_attention(longer), AttentionLibrary::cudnn);
  cudnn_on_trial.wrong_from = 385;  // what dense can be asked about is right
  EXPECT_EQ(measure_attention(longer), AttentionLibrary::flash);
}

TEST_F(AttentionChoice, LeavesOutCudnnWhereResultsHaveToRepeat) {
  flash_on_trial.delay = 5ms;
  at::globalContext().setDeterministicAlgorithms(true, true);
  EXPECT_EQ(measure_attention(shorter), AttentionLibrary::flash);
  EXPECT_EQ(cudnn_on_trial.calls, 0);
}

}  // namespace
}  // namespace trireme::kernels

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/checkpoint/manifest.hpp"
#include "trireme/model/model.hpp"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;

TEST(CheckModel, ListsParametersThatAreMissingTooManyRenamedOrOfAnotherShape) {
  const model::Model model = model::build({.vocab_size = 101,
                                           .hidden_size = 36,
                                           .intermediate_size = 52,
                                           .layers = 2,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .head_dim = 10});
  Manifest manifest;
  manifest.model = model_metadata(model);
  manifest.parameters = saved_parameters(model);
  EXPECT_NO_THROW(check_model("there", manifest, model));
  const auto said = [&](auto&& change) {
    Manifest changed = manifest;
    change(changed.parameters);
    try {
      check_model("there", changed, model);
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(said([](auto& all) { all.pop_back(); }),
              HasSubstr("lm_head.weight: not in the checkpoint, now [101, 36]"));
  EXPECT_THAT(said([](auto& all) {
                all.push_back({"model.extra.weight", {3, 4}});
              }),
              HasSubstr("model.extra.weight: saved [3, 4], now absent"));
  const std::string renamed = said([](auto& all) { all.back().name = "head.weight"; });
  EXPECT_THAT(renamed, HasSubstr("head.weight: saved [101, 36], now absent"));
  EXPECT_THAT(renamed, HasSubstr("lm_head.weight: not in the checkpoint"));
  EXPECT_THAT(said([](auto& all) {
                all.back().shape = {36, 101};
              }),
              HasSubstr("lm_head.weight: saved [36, 101], now [101, 36]"));
}

}  // namespace
}  // namespace trireme::checkpoint

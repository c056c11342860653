// SPDX-License-Identifier: Apache-2.0
// Golden lists of four pipeline ranks: TRIREME_UPDATE_GOLDENS=1 rewrites them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "pipelines.hpp"
#include "trireme/config/names.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {
namespace {

class GoldenPipeline : public ::testing::TestWithParam<PipelineKind> {};

TEST_P(GoldenPipeline, EqualsTheTexts) {
  const PipelineKind kind = GetParam();
  const testing::Lists built = testing::lists_of(
      testing::pipeline(kind, 4, kind == PipelineKind::dualpipev ? 8 : 4),
      {.sync = config::SyncPolicy::deferred, .reshard = {.after_forward = false, .after_backward = false}});
  for (std::size_t rank = 0; rank < built.lists.size(); ++rank) {
    const std::string path =
        fmt::format("{}/tests/schedule/golden/pipeline/{}_rank{}.txt", TRIREME_SOURCE_DIR, config::to_text(kind), rank);
    const std::string text = print(built.lists[rank], built.parts[rank].model);
    if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << text;
    std::ifstream in(path);
    std::ostringstream golden;
    golden << in.rdbuf();
    EXPECT_EQ(text, golden.str()) << "run with TRIREME_UPDATE_GOLDENS=1 and look at the diff";
    EXPECT_EQ(parse(golden.str(), built.parts[rank].model), built.lists[rank]);
  }
}

INSTANTIATE_TEST_SUITE_P(, GoldenPipeline, ::testing::ValuesIn(testing::all_kinds),
                         [](const auto& info) { return "with_" + std::string(config::to_text(info.param)); });

}  // namespace
}  // namespace trireme::schedule

// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/links.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "support/test_transports.hpp"
#include "trireme/base/error.hpp"

namespace trireme::executor {
namespace {

using device::Space;
using mesh::Group;
using schedule::Lane;

comm::Collectives collectives(const std::string& name) {
  return {std::make_unique<comm::RecordingTransport>(0, 2), "shard", name, {}};
}

TEST(Links, DifferByGroupLaneAndMemory) {
  comm::Collectives gather = collectives("gather"), reduce = collectives("reduce"), replicas = collectives("replicas"),
                    on_host = collectives("on the host");
  Links links;
  links.add({Group::shard, Lane::gather}, gather);
  links.add({Group::shard, Lane::reduce}, reduce);
  links.add({Group::replicate, Lane::reduce}, replicas);
  links.add({Group::replicate, Lane::reduce, Space::host}, on_host);
  EXPECT_EQ(&links.at({Group::shard, Lane::gather}), &gather);
  EXPECT_EQ(&links.at({Group::shard, Lane::reduce}), &reduce);
  EXPECT_EQ(&links.at({Group::replicate, Lane::reduce}), &replicas);
  EXPECT_EQ(&links.at({Group::replicate, Lane::reduce, Space::host}), &on_host);
}

TEST(Links, AreTheSameForBothMemoriesWhereNothingIsApart) {
  comm::Collectives reduce = collectives("reduce");
  Links links;
  links.add({Group::shard, Lane::reduce}, reduce);
  EXPECT_EQ(&links.at({Group::shard, Lane::reduce, Space::host}), &reduce);
  EXPECT_EQ(links.find({Group::shard, Lane::reduce, Space::host}), nullptr) << "none is opened for the host";
}

/// "shard/gather dp/compute ..."; "+host" for those of the host's memory.
std::string text_of(const std::vector<Link>& links) {
  std::string text;
  for (const Link& link : links) {
    text += std::string(text.empty() ? "" : " ") + std::string(mesh::to_text(link.group)) + "/" +
            std::string(to_text(link.lane)) + (link.space == Space::host ? "+host" : "");
  }
  return text;
}

TEST(Links, OfARunAreThoseOfItsGroups) {
  EXPECT_EQ(text_of(links_of({})), "shard/gather shard/reduce dp/compute") << "one rank";
  EXPECT_EQ(text_of(links_of({.mesh = {.replicate = 2, .shard = 4}, .shard_group = 2})),
            "shard/gather shard/reduce replicate/reduce dp/compute shard_group/gather");
  EXPECT_EQ(text_of(links_of({.mesh = {.tensor = 4}, .tensor_group = 2})),
            "shard/gather shard/reduce dp/compute tensor/tensor tensor/reduce tensor/compute tensor_group/reduce");
  EXPECT_EQ(text_of(links_of({.mesh = {.shard = 4, .expert = 2}, .expert_blocks = true})),
            "shard/gather shard/reduce dp/compute expert/expert expert_shard/gather expert_shard/reduce");
  EXPECT_EQ(text_of(links_of({.mesh = {.tensor = 2}, .expert_blocks = true, .sums_loads = true})),
            "shard/gather shard/reduce dp/compute tensor/tensor tensor/reduce tensor/compute sequence/expert "
            "expert_shard/gather expert_shard/reduce");
  EXPECT_EQ(text_of(links_of({.mesh = {.replicate = 2, .tensor = 2}, .matrices = true})),
            "shard/gather shard/reduce replicate/reduce dp/compute tensor/tensor tensor/reduce tensor/compute "
            "fold/gather fold/reduce");
  EXPECT_EQ(text_of(links_of({.mesh = {.replicate = 2}, .matrices = true})),
            "shard/gather shard/reduce replicate/reduce dp/compute")
      << "replicas update alike";
  EXPECT_EQ(text_of(links_of({.mesh = {.pipeline = 2, .shard = 2}})),
            "shard/gather shard/reduce dp/compute pipeline/compute pipeline/send pipeline/receive");
  EXPECT_EQ(text_of(links_of({.mesh = {.pipeline = 2}, .tied = true})),
            "shard/gather shard/reduce dp/compute pipeline/compute tied/reduce pipeline/send pipeline/receive");
}

TEST(Links, OfGradientsOnTheHostAreThereForWhatIsReducedThere) {
  EXPECT_EQ(text_of(links_of({.mesh = {.shard = 2}, .gradients_on_host = true})),
            "shard/gather shard/reduce dp/compute")
      << "the shard axis reduces on the device";
  EXPECT_EQ(text_of(links_of({.mesh = {.replicate = 2, .tensor = 2}, .gradients_on_host = true})),
            "shard/gather shard/reduce replicate/reduce dp/compute tensor/tensor tensor/reduce tensor/compute "
            "replicate/reduce+host tensor/reduce+host");
}

TEST(Links, AreNamedWhereARunHasNone) {
  const Links links;
  EXPECT_EQ(links.find({Group::tensor, Lane::compute}), nullptr);
  try {
    (void)links.at({Group::tensor_group, Lane::reduce});
    FAIL() << "there is none";
  } catch (const BugError& error) {
    EXPECT_NE(std::string(error.what()).find("no collectives over tensor_group on the reduce lane"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::executor

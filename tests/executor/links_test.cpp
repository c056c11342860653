// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/links.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "support/test_transports.hpp"
#include "trireme/base/error.hpp"

namespace trireme::executor {
namespace {

using comm::Group;
using device::Space;
using schedule::Lane;

comm::Collectives collectives(const std::string& name) {
  return {std::make_unique<comm::RecordingTransport>(0, 2), "shard", name, {}};
}

TEST(Links, AreToldApartByGroupLaneAndMemory) {
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

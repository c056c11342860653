// SPDX-License-Identifier: Apache-2.0
//
// A store is filled in chunks, which a GPU copies while the host makes the next ones: every master is the value that it
// has in its parameter, whatever the device, the masters' form and the mesh.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "support/jobs.hpp"
#include "support/training/gpu_jobs.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::train::first_values_test {
namespace {

class FirstValues : public test::StagedGpuJobs {
 protected:
  /// Two parameters of several chunks each on one rank, and on two.
  [[nodiscard]] config::RunConfig run(DType compute) const {
    config::RunConfig config = test::odd_run(files_, 1);
    config.model.vocab_size = 60'000;
    config.data.seq_len = 12;
    config.batch.global = 4;
    config.precision.compute = compute;
    return config;
  }
  void expect_values(const config::RunConfig& config, const JobOptions& options) const {
    const store::ParameterInitializer values = store::initial_values(5);
    Job job(config, world_, options);
    // Twice: what the first fill left is overwritten.
    job.store().fill([](const model::Parameter&, shard::Range, std::span<float> out) { std::ranges::fill(out, 7.0F); });
    job.store().fill(values);
    const model::Model& model = job.model();
    for (int b = 0; b < model.param_blocks(); ++b) {
      const ParamBlock block{b};
      at::Tensor expected = at::zeros({job.store().layout()[block].shard_elements()}, at::kFloat);
      for (const shard::Slice& slice :
           shard::whole_slices(model[block], job.store().layout()[block], job.store().shard_of(block)))
        values(model[model::ParamRef{block, slice.parameter}], slice.elements,
               {expected.mutable_data_ptr<float>() + slice.offset, static_cast<std::size_t>(slice.elements.size())});
      EXPECT_TRUE(device::on_host(job.store().masters(block)).equal(expected)) << model[block].name;
      if (config.precision.compute != DType::bf16 || config.precision.masters == config::Masters::split) continue;
      EXPECT_TRUE(device::on_host(job.store().compute_shard(block)).equal(expected.to(at::kBFloat16)))
          << model[block].name << " in bf16";
    }
  }
};

TEST_F(FirstValues, DependOnTheirElementAlone) {
  JobOptions on_cpu = options_;
  on_cpu.device = at::kCPU;
  for (const JobOptions& options : {options_, on_cpu}) {
    SCOPED_TRACE(options.device.str());
    expect_values(run(DType::fp32), options);
    expect_values(run(DType::bf16), options);
    config::RunConfig config = run(DType::bf16);
    config.precision.masters = config::Masters::split;
    expect_values(config, options);
    config = run(DType::bf16);
    config.memory.offload = config::Offload::optimizer;
    expect_values(config, options);
    config = run(DType::bf16);
    config.mesh.tensor = world_.size();
    expect_values(config, options);
  }
}

}  // namespace
}  // namespace trireme::train::first_values_test

// SPDX-License-Identifier: Apache-2.0
// The sections [mesh], [sync], [precision], [memory], [device] and [comm]: how the work is spread over the machine.
#include "trireme/config/section.hpp"

namespace trireme::config {

namespace {

constexpr double most_ranks = 1 << 20;

/// true (0): to the whole shard axis; false (1): not at all; or a group size.
Expected read_reshard(const Value& value, Sync& sync) {
  bool flag = false;
  if (!read(value, flag)) {
    sync.reshard_after_forward = flag ? 0 : 1;
    return std::nullopt;
  }
  if (read(value, sync.reshard_after_forward, between(1, most_ranks)))
    return "true, false or a group size that divides the shard axis";
  return std::nullopt;
}

Printed print_reshard(const Sync& sync) {
  return sync.reshard_after_forward <= 1 ? print(sync.reshard_after_forward == 0) : print(sync.reshard_after_forward);
}

Expected read_shard(const Value& value, Mesh& mesh) {
  std::int64_t size = 0;
  if (read(value, size, between(-1, most_ranks)) || size == 0)
    return "an integer, at least 1, or -1 for the ranks left";
  mesh.shard = size;
  return std::nullopt;
}

}  // namespace

std::vector<Option> mesh_options() {
  Section<Mesh> s("mesh", &RunConfig::mesh);
  s.number("replicate", &Mesh::replicate, between(1, most_ranks), "copies of the sharded model (hybrid sharding)");
  s.custom(
      "shard", "integer", read_shard, [](const Mesh& mesh) { return print(mesh.shard); },
      "ranks that share one copy's parameters, gradients and optimizer state (-1: the ranks left)");
  s.number("tensor", &Mesh::tensor, between(1, most_ranks), "ranks that share each layer's work");
  s.flag("sequence_parallel", &Mesh::sequence_parallel, "norms and residuals are cut along the sequence, too")
      .default_is("tensor > 1");
  s.reserved("context", 1, "ranks that share a sequence");
  s.reserved("pipeline", 1, "ranks that share the blocks");
  return s.take();
}

std::vector<Option> sync_options() {
  Section<Sync> s("sync", &RunConfig::sync);
  s.choice("policy", &Sync::policy,
           "gradients are reduced after every microbatch (immediate) or after the last (deferred: less traffic, more "
           "memory); auto: the least traffic that fits memory.budget");
  s.custom("reshard_after_forward", "true | false | integer", read_reshard, print_reshard,
           "free a block's parameters between forward and backward; a number: keep 1/number of them");
  s.flag("reshard_after_backward", &Sync::reshard_after_backward,
         "free a block's parameters after backward (false: at the update)");
  s.number("prefetch_bytes", &Sync::prefetch_bytes, Limits{}, "parameters gathered ahead of their use, at most")
      .default_is("one block");
  return s.take();
}

std::vector<Option> precision_options() {
  Section<Precision> s("precision", &RunConfig::precision);
  s.choice("compute", &Precision::compute, "of activations, of matrix products and of the gathered parameters");
  s.choice("reduce", &Precision::reduce, "of the gradient sums; bf16_wire sends bf16 and sums in fp32");
  s.choice("moments", &Precision::moments, "of AdamW's two moments").not_yet();
  return s.take();
}

std::vector<Option> memory_options() {
  Section<Memory> s("memory", &RunConfig::memory);
  s.choice(
      "recompute", &Memory::recompute,
      "what backward computes again. selective: norms and SwiGLU; block: all but the block's input; none: nothing");
  s.number("recompute_every", &Memory::recompute_every, between(1, 1 << 16),
           "of so many blocks one does, the others keep all that backward reads");
  s.flag("activation_offload", &Memory::activation_offload,
         "activations wait in host memory between forward and backward, the last layer's excepted");
  s.number("activation_offload_min_bytes", &Memory::activation_offload_min_bytes, Limits{}, "smaller tensors stay");
  s.number("activation_offload_in_flight", &Memory::activation_offload_in_flight, between(1, 1024),
           "layers copied at once, at most; one more is on the device");
  s.choice("offload", &Memory::offload, "what lives in host memory: the optimizer, or the parameters with it");
  s.number("offload_fraction", &Memory::offload_fraction, between(0, 1),
           "the part of it that does, by bytes, first blocks first");
  s.number("budget", &Memory::budget, above(0),
           "bytes of a rank that automatic choices keep to; on a GPU no more is allocated, on CPUs a step that takes "
           "more is a warning")
      .default_is("none");
  return s.take();
}

std::vector<Option> device_options() {
  Section<Device> s("device", &RunConfig::device);
  s.choice("type", &Device::type, "where tensors live");
  s.number("threads", &Device::threads, between(0, 4096), "threads of a rank (0: from the cores it may run on)");
  s.flag("cuda_graphs", &Device::cuda_graphs,
         "launch what a microbatch computes as CUDA graphs, recorded in the second step");
  return s.take();
}

std::vector<Option> comm_options() {
  Section<Comm> s("comm", &RunConfig::comm);
  s.choice("backend", &Comm::backend, "who moves tensors; auto: NCCL on the device, MPI on the host");
  s.number("timeout_seconds", &Comm::timeout_seconds, above(0),
           "a collective that takes longer ends the job with exit 7");
  s.flag("lane_threads", &Comm::lane_threads, "collectives run on threads of their own, beside the computation")
      .default_is("with a core to spare");
  return s.take();
}

}  // namespace trireme::config

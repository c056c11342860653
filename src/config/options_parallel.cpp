// SPDX-License-Identifier: Apache-2.0
// The sections [mesh], [context], [pipeline], [sync], [precision], [memory], [device] and [comm]: how the work is
// spread over the machine.
#include "config/mesh_keys.hpp"
#include "config/section.hpp"

namespace trireme::config {

namespace {

constexpr double most_ranks = 1 << 20;
constexpr double most_bytes = 0x1p50;  // 1 PiB: sums stay within 64 bits

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
  for (const auto& [axis, size, meaning] : mesh_keys) {
    const std::string key(mesh::to_text(axis)), help(meaning);
    if (axis == remaining_axis)
      s.custom(
          key, "integer", read_shard, [](const Mesh& mesh) { return print(mesh.shard); }, help);
    else
      s.number(key, size, between(1, most_ranks), help);
  }
  s.flag("sequence_parallel", &Mesh::sequence_parallel, "shard norms and residuals along the sequence dimension")
      .default_is("tensor > 1");
  s.number(
      "expert", &Mesh::expert, between(1, most_ranks),
      "expert-parallel size: the experts of every layer are divided over as many neighbours among the shard, context "
      "and tensor ranks, to which tokens are sent");
  s.number("expert_room", &Mesh::expert_room, at_least(1),
           "rows for the experts of a rank that the planned memory has room for, as a multiple of a balanced load");
  return s.take();
}

std::vector<Option> context_options() {
  Section<Context> s("context", &RunConfig::context);
  s.choice("method", &Context::method,
           "how ranks of mesh.context attend over whole sequences: gather: all-gather keys and values; heads: exchange "
           "sequences for heads (Ulysses), mesh.context x mesh.tensor divides heads and kv_heads");
  return s.take();
}

std::vector<Option> pipeline_options() {
  Section<Pipeline> s("pipeline", &RunConfig::pipeline);
  s.choice("schedule", &Pipeline::schedule,
           "order of forwards and backwards: gpipe: all forwards first; 1f1b: fewer activations; interleaved: "
           "several chunks a rank, a smaller bubble, more traffic; zb_h1: weight gradients fill the bubble; zbv, "
           "dualpipev: two chunks a rank in a V, the smallest bubble");
  s.number("chunks", &Pipeline::chunks, between(1, 1024), "chunks of layers on each pipeline rank")
      .default_is("2 for interleaved, zbv and dualpipev, else 1");
  s.number("layers", &Pipeline::layers, between(1, 1 << 16), "layers of each chunk, in the model's order")
      .default_is("[]: cut by FLOPs");
  return s.take();
}

std::vector<Option> sync_options() {
  Section<Sync> s("sync", &RunConfig::sync);
  s.choice("policy", &Sync::policy,
           "when to reduce gradients: immediate: reduce-scatter after every microbatch; deferred: once per step (less "
           "traffic, more memory); immediate_all: also all-reduce over replicas after every microbatch; auto: the one "
           "with the shortest predicted step that fits memory.budget");
  s.custom("reshard_after_forward", "true | false | integer", read_reshard, print_reshard,
           "free a block's parameters between forward and backward; an integer: reshard to groups of this size");
  s.flag("reshard_after_backward", &Sync::reshard_after_backward,
         "free a block's parameters after backward (false: keep them until the optimizer step)");
  s.number("prefetch_bytes", &Sync::prefetch_bytes, between(0, most_bytes),
           "maximum bytes of parameters gathered ahead of their use")
      .default_is("one block");
  return s.take();
}

std::vector<Option> precision_options() {
  Section<Precision> s("precision", &RunConfig::precision);
  s.choice("compute", &Precision::compute, "data type of activations, matrix products and gathered parameters");
  s.choice("reduce", &Precision::reduce,
           "data type of gradient reductions; bf16_wire sends bf16 and accumulates in fp32");
  s.choice(
      "masters", &Precision::masters,
      "storage of the fp32 master weights; split: bf16 parameters and 16-bit remainders, 2 bytes a parameter less; "
      "of two bf16 numbers as near to a master, the parameter is the one further from zero, not the even one; "
      "requires precision.compute = bf16");
  s.choice("moments", &Precision::moments,
           "data type of the AdamW moments; bf16: stochastic rounding after each update, 4 bytes a parameter less");
  s.choice(
      "fp8", &Precision::fp8,
      "8-bit operands in the products of attention, MLP and experts, forward and input gradients: rowwise: e4m3, a "
      "scale for each token and output; mx: e4m3, one for each 32 elements (compute capability 10.0); tensorwise: "
      "e4m3, gradients e5m2, one for each operand: another mesh computes other losses");
  s.custom(
      "fp8_skip", "strings", [](const Value& value, Precision& precision) { return read(value, precision.fp8_skip); },
      [](const Precision& precision) { return print(precision.fp8_skip); },
      "weights whose products stay in precision.compute: glob patterns over Hugging Face names");
  return s.take();
}

std::vector<Option> memory_options() {
  Section<Memory> s("memory", &RunConfig::memory);
  s.choice(
      "recompute", &Memory::recompute,
      "activation checkpointing: selective: recompute norms and SwiGLU; block: recompute whole blocks; none: keep all "
      "activations");
  s.number("recompute_every", &Memory::recompute_every, between(1, 1 << 16), "recompute every Nth block");
  s.flag("activation_offload", &Memory::activation_offload,
         "offload activations to host memory between forward and backward, except those of the last block");
  s.number("activation_offload_min_bytes", &Memory::activation_offload_min_bytes, between(0, most_bytes),
           "minimum size of an offloaded tensor, in bytes");
  s.number("activation_offload_in_flight", &Memory::activation_offload_in_flight, between(1, 1024),
           "maximum number of blocks whose activations are copied at once");
  s.choice("offload", &Memory::offload,
           "what to offload to host memory: optimizer state, or parameters and optimizer state");
  s.number("offload_fraction", &Memory::offload_fraction, between(0, 1),
           "fraction offloaded, by bytes, from the first block on");
  s.number("budget", &Memory::budget, between(1, most_bytes),
           "memory budget of a rank, in bytes: bounds automatic choices; a hard limit on a GPU, a warning on CPUs")
      .default_is("none");
  return s.take();
}

std::vector<Option> device_options() {
  Section<Device> s("device", &RunConfig::device);
  s.choice("type", &Device::type, "device on which to compute");
  s.number("threads", &Device::threads, between(0, 4096), "number of CPU threads per rank (0: from the CPU affinity)");
  s.flag("cuda_graphs", &Device::cuda_graphs,
         "launch the computation of a microbatch as CUDA graphs, captured in the second step");
  return s.take();
}

std::vector<Option> comm_options() {
  Section<Comm> s("comm", &RunConfig::comm);
  s.choice("backend", &Comm::backend, "communication backend; auto: NCCL for device tensors, MPI for host tensors");
  s.number("timeout_seconds", &Comm::timeout_seconds, above(0),
           "timeout of a collective, in seconds; on timeout the job ends with exit code 7");
  s.flag("lane_threads", &Comm::lane_threads, "run collectives on separate threads, overlapped with computation")
      .default_is("if a rank has more than one core");
  s.number("nccl_max_ctas", &Comm::nccl_max_ctas, between(0, 64),
           "thread blocks that an NCCL collective may take from computation (0: NCCL decides)");
  s.flag(
      "nccl_windows", &Comm::nccl_windows,
      "register the buffers of all-gathers and reduce-scatters as symmetric windows, for which NCCL has faster kernels "
      "where all ranks of a group share an NVLink domain");
  s.flag(
      "nccl_copy_engines", &Comm::nccl_copy_engines,
      "all-gathers by copy engines where NCCL can (groups within an NVLink domain), which leaves all thread blocks to "
      "computation; requires nccl_windows");
  return s.take();
}

}  // namespace trireme::config

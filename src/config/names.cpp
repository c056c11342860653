// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/names.hpp"

#include <fmt/format.h>

namespace trireme::config {

namespace {

constexpr Name<Export> export_names[] = {
    {Export::never, "never"}, {Export::end, "end"}, {Export::every_checkpoint, "every_checkpoint"}};
constexpr Name<Init> init_names[] = {{Init::normal, "normal"}, {Init::depth_scaled, "depth_scaled"}};
constexpr Name<RopeType> rope_type_names[] = {{RopeType::llama3, "llama3"},
                                              {RopeType::linear, "linear"},
                                              {RopeType::yarn, "yarn"},
                                              {RopeType::longrope, "longrope"},
                                              {RopeType::dynamic, "dynamic"}};
constexpr Name<TokenFormat> token_format_names[] = {{TokenFormat::automatic, "auto"},
                                                    {TokenFormat::uint16, "uint16"},
                                                    {TokenFormat::uint32, "uint32"},
                                                    {TokenFormat::megatron, "megatron"},
                                                    {TokenFormat::llmc, "llmc"}};
constexpr Name<Packing> packing_names[] = {{Packing::concatenate, "concatenate"}, {Packing::best_fit, "best_fit"}};
constexpr Name<SyncPolicy> sync_policy_names[] = {{SyncPolicy::immediate, "immediate"},
                                                  {SyncPolicy::deferred, "deferred"},
                                                  {SyncPolicy::immediate_all, "immediate_all"},
                                                  {SyncPolicy::automatic, "auto"}};
constexpr Name<DType> dtype_names[] = {{DType::bf16, "bf16"}, {DType::fp32, "fp32"}};
constexpr Name<Fp8> fp8_names[] = {
    {Fp8::none, "none"}, {Fp8::rowwise, "rowwise"}, {Fp8::mx, "mx"}, {Fp8::tensorwise, "tensorwise"}};
constexpr Name<Reduce> reduce_names[] = {
    {Reduce::fp32, "fp32"}, {Reduce::bf16, "bf16"}, {Reduce::bf16_wire, "bf16_wire"}};
constexpr Name<Masters> masters_names[] = {{Masters::fp32, "fp32"}, {Masters::split, "split"}};
constexpr Name<Recompute> recompute_names[] = {
    {Recompute::none, "none"}, {Recompute::selective, "selective"}, {Recompute::block, "block"}};
constexpr Name<ContextMethod> context_names[] = {{ContextMethod::gather, "gather"}, {ContextMethod::heads, "heads"}};
constexpr Name<PipelineKind> pipeline_names[] = {
    {PipelineKind::gpipe, "gpipe"}, {PipelineKind::one_f_one_b, "1f1b"}, {PipelineKind::interleaved, "interleaved"},
    {PipelineKind::zb_h1, "zb_h1"}, {PipelineKind::zbv, "zbv"},          {PipelineKind::dualpipev, "dualpipev"}};
constexpr Name<Offload> offload_names[] = {
    {Offload::none, "none"}, {Offload::optimizer, "optimizer"}, {Offload::parameters, "parameters"}};
constexpr Name<OptimizerName> optimizer_names[] = {{OptimizerName::adamw, "adamw"}, {OptimizerName::muon, "muon"}};
constexpr Name<MuonScale> muon_scale_names[] = {
    {MuonScale::moonlight, "moonlight"}, {MuonScale::jordan, "jordan"}, {MuonScale::spectral, "spectral"}};
constexpr Name<NewtonSchulz> newton_schulz_names[] = {{NewtonSchulz::jordan, "jordan"},
                                                      {NewtonSchulz::polar_express, "polar_express"}};
constexpr Name<NewtonSchulzPrecision> newton_schulz_precision_names[] = {{NewtonSchulzPrecision::automatic, "auto"},
                                                                         {NewtonSchulzPrecision::fp32, "fp32"},
                                                                         {NewtonSchulzPrecision::bf16, "bf16"}};
constexpr Name<LrSchedule> lr_schedule_names[] = {{LrSchedule::cosine, "cosine"},
                                                  {LrSchedule::linear, "linear"},
                                                  {LrSchedule::constant, "constant"},
                                                  {LrSchedule::wsd, "wsd"}};
constexpr Name<DataOnResume> data_on_resume_names[] = {{DataOnResume::keep_going, "continue"},
                                                       {DataOnResume::restart, "restart"}};
constexpr Name<DeviceType> device_type_names[] = {
    {DeviceType::automatic, "auto"}, {DeviceType::cpu, "cpu"}, {DeviceType::cuda, "cuda"}};
constexpr Name<Backend> backend_names[] = {
    {Backend::automatic, "auto"}, {Backend::mpi, "mpi"}, {Backend::nccl, "nccl"}};

}  // namespace

std::span<const Name<Export>> names_of(Export /*any*/) { return export_names; }
std::span<const Name<Init>> names_of(Init /*any*/) { return init_names; }
std::span<const Name<RopeType>> names_of(RopeType /*any*/) { return rope_type_names; }
std::span<const Name<TokenFormat>> names_of(TokenFormat /*any*/) { return token_format_names; }
std::span<const Name<Packing>> names_of(Packing /*any*/) { return packing_names; }
std::span<const Name<SyncPolicy>> names_of(SyncPolicy /*any*/) { return sync_policy_names; }
std::span<const Name<DType>> names_of(DType /*any*/) { return dtype_names; }
std::span<const Name<Fp8>> names_of(Fp8 /*any*/) { return fp8_names; }
std::span<const Name<Reduce>> names_of(Reduce /*any*/) { return reduce_names; }
std::span<const Name<Masters>> names_of(Masters /*any*/) { return masters_names; }
std::span<const Name<Recompute>> names_of(Recompute /*any*/) { return recompute_names; }
std::span<const Name<ContextMethod>> names_of(ContextMethod /*any*/) { return context_names; }
std::span<const Name<PipelineKind>> names_of(PipelineKind /*any*/) { return pipeline_names; }
std::span<const Name<Offload>> names_of(Offload /*any*/) { return offload_names; }
std::span<const Name<OptimizerName>> names_of(OptimizerName /*any*/) { return optimizer_names; }
std::span<const Name<MuonScale>> names_of(MuonScale /*any*/) { return muon_scale_names; }
std::span<const Name<NewtonSchulz>> names_of(NewtonSchulz /*any*/) { return newton_schulz_names; }
std::span<const Name<NewtonSchulzPrecision>> names_of(NewtonSchulzPrecision /*any*/) {
  return newton_schulz_precision_names;
}
std::span<const Name<LrSchedule>> names_of(LrSchedule /*any*/) { return lr_schedule_names; }
std::span<const Name<DataOnResume>> names_of(DataOnResume /*any*/) { return data_on_resume_names; }
std::span<const Name<DeviceType>> names_of(DeviceType /*any*/) { return device_type_names; }
std::span<const Name<Backend>> names_of(Backend /*any*/) { return backend_names; }

std::string nccl_setting(const Comm& comm) {
  if (comm.nccl_max_ctas > 0) return fmt::format("nccl_max_ctas = {}", comm.nccl_max_ctas);
  if (comm.nccl_windows) return "nccl_windows = true";
  return comm.nccl_copy_engines ? "nccl_copy_engines = true" : "";
}

}  // namespace trireme::config

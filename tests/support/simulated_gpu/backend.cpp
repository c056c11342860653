// SPDX-License-Identifier: Apache-2.0
//
// Libtorch's side of the simulated GPU: what it needs of a device type, and its operators, each run by the CPU's kernel
// on CPU tensors over the same memory.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/simulated_gpu/engine.hpp"
#include "trireme/base/error.hpp"

namespace trireme::test::gpu {
namespace {

constexpr auto cuda = c10::DeviceType::CUDA;

/// A process has GPU 0. A thread that has not set its GPU uses another one, as a new thread on a real node uses the
/// first: CUDA calls there without a device guard create a context on it.
constexpr c10::DeviceIndex not_ours = 1;
c10::DeviceIndex& device_of_thread() {
  thread_local c10::DeviceIndex device = gettid() == getpid() ? c10::DeviceIndex{0} : not_ours;
  return device;
}
const Moment& of_this_device(void* event) {
  invariant(device_of_thread() == 0, "a thread sets its GPU before it asks for events");
  return *static_cast<const Moment*>(event);
}

std::atomic<c10::StreamId> last_stream = 0;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return cuda; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {cuda, std::exchange(device_of_thread(), device.index())};
  }
  c10::Device getDevice() const override { return {cuda, device_of_thread()}; }
  void setDevice(c10::Device device) const override { device_of_thread() = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { device_of_thread() = device.index(); }
  c10::Stream getStream(c10::Device device) const override { return stream(device, current_stream()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return stream(device, ++last_stream); }
  void synchronizeDevice(c10::DeviceIndex) const override {
    for (c10::StreamId id = 0; id <= last_stream; ++id) wait_for(moment(id));
  }
  c10::Stream exchangeStream(c10::Stream now) const override {
    return stream(now.device(), std::exchange(current_stream(), now.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return not_ours + 1; }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Moment;
    *static_cast<Moment*>(*event) = moment(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    hold_up(stream.id(), *static_cast<const Moment*>(event));
  }
  void synchronizeEvent(void* event) const override { wait_for(of_this_device(event)); }
  bool queryEvent(void* event) const override {
    const Moment& moment = of_this_device(event);
    invariant(!events_fail(), "CUDA error: an illegal memory access was encountered");
    if (events_are_held()) return false;
    if (concurrent()) return is_done(moment);
    reach(moment);  // nothing else makes it run
    return true;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Moment*>(event); }
  void synchronizeStream(const c10::Stream& stream) const override { wait_for(moment(stream.id())); }
  double elapsedTime(void*, void*, c10::DeviceIndex) const override { return 0.0; }

 private:
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device.has_index() ? device : c10::Device(cuda, 0), id);
  }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::Device getDeviceFromPtr(void* data) const override {
    invariant(is_there(data), "memory of the host was taken for the GPU's");
    return {cuda, 0};
  }
  std::string showConfig() const override { return "a GPU simulated on the CPU"; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::DeviceType::CPU); }
  c10::Allocator* getCUDADeviceAllocator() const override { return &memory(); }
};

/// The arguments of an operator as the CPU's kernel gets them.
class Arguments {
 public:
  explicit Arguments(c10::ArrayRef<c10::IValue> given) {
    for (const c10::IValue& value : given) on_host.push_back(translated(value));
  }
  /// Relation of a result to the device: an argument, a view of one, or new.
  [[nodiscard]] std::optional<at::Tensor> on_device(const at::Tensor& result) const {
    if (!result.defined() || result.is_cuda()) return result;
    for (const auto& [original, alias] : pairs_)
      if (alias.is_same(result) && original.sizes() == result.sizes()) return original;
    for (const auto& [original, alias] : pairs_)
      if (result.storage().data() == alias.storage().data() && is_there(result.storage().data()))
        return tensor(original.storage(), original.key_set(), result);
    return std::nullopt;
  }
  [[nodiscard]] bool reads_the_host() const { return reads_the_host_; }

  /// A CPU tensor over the device's memory, which it does not keep alive.
  static at::Tensor alias(const at::Tensor& t) {
    c10::Storage storage(c10::Storage::use_byte_size_t(), t.storage().nbytes(),
                         c10::DataPtr(t.storage().mutable_data(), c10::Device(c10::DeviceType::CPU)), nullptr, false);
    return tensor(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), t);
  }

  torch::jit::Stack on_host;

 private:
  static at::Tensor tensor(c10::Storage storage, c10::DispatchKeySet keys, const at::Tensor& like) {
    auto made = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), keys, like.dtype());
    made.unsafeGetTensorImpl()->set_storage_offset(like.storage_offset());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
    return made;
  }
  at::Tensor translated(const at::Tensor& t) {
    if (!t.defined()) return t;
    if (!t.is_cuda()) {
      reads_the_host_ = reads_the_host_ || t.dim() > 0;
      return t;
    }
    for (const auto& [original, alias] : pairs_)
      if (original.is_same(t)) return alias;
    // An operator makes an empty output as large as it needs.
    return pairs_.emplace_back(t, t.numel() > 0 ? alias(t) : at::empty(t.sizes(), t.options().device(at::kCPU))).second;
  }
  c10::IValue translated(const c10::IValue& value) {
    if (value.isTensor()) return translated(value.toTensor());
    if (value.isDevice() && value.toDevice().is_cuda()) return c10::Device(c10::DeviceType::CPU);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(translated(t));
      return list;
    }
    if (value.isList()) {
      c10::List<c10::IValue> given = value.toList();
      c10::impl::GenericList list(given.elementType());
      for (const c10::IValue& each : given) list.push_back(translated(each));
      return list;
    }
    return value;
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;  ///< the device's, and its alias
  bool reads_the_host_ = false;
};

torch::jit::Stack call(const c10::OperatorHandle& op, torch::jit::Stack arguments) {
  const at::AutoDispatchBelowADInplaceOrView kernels_only;
  const torch::jit::Stack kept = arguments;  // returned values may refer to arguments
  op.callBoxed(arguments);
  return arguments;
}

/// Copies of the tensors that the operator writes, to compute its return values without side effects.
torch::jit::Stack without_effects(const c10::FunctionSchema& schema, torch::jit::Stack arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto* const alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite() && arguments[i].isTensor() && arguments[i].toTensor().defined())
      arguments[i] = arguments[i].toTensor().clone();
  }
  return arguments;
}

/// New memory of the device, and which result goes there.
using Made = std::vector<std::pair<std::size_t, at::Tensor>>;

/// The argument that result `r` is, because the operator writes it.
std::optional<std::size_t> written(const c10::FunctionSchema& schema, std::size_t r) {
  const auto* const result = schema.returns()[r].alias_info();
  if (result == nullptr || !result->isWrite()) return std::nullopt;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* const argument = schema.arguments()[i].alias_info();
    if (argument != nullptr && argument->isWrite() && argument->beforeSets() == result->beforeSets()) return i;
  }
  return std::nullopt;
}

/// Result `r` as a tensor of the device.
at::Tensor on_device(const c10::FunctionSchema& schema, const Arguments& arguments,
                     c10::ArrayRef<c10::IValue> originals, std::size_t r, const at::Tensor& result, Made& made) {
  const std::optional<std::size_t> argument = written(schema, r);
  at::Tensor target = argument ? originals[*argument].toTensor() : at::Tensor();
  if (target.defined() && target.sizes() == result.sizes()) return target;
  if (!argument)
    if (const auto there = arguments.on_device(result)) return *there;
  const at::Tensor fresh = at::detail::empty_strided_generic(
      result.sizes(), result.strides(), &memory(), c10::DispatchKeySet(c10::DispatchKey::CUDA), result.scalar_type());
  made.emplace_back(r, Arguments::alias(fresh));
  if (!argument) return fresh;
  target.unsafeGetTensorImpl()->set_storage_keep_dtype(fresh.storage());
  target.unsafeGetTensorImpl()->set_sizes_and_strides(fresh.sizes(), fresh.strides());
  return target;
}

void copy_into(const Made& made, const torch::jit::Stack& returned) {
  const at::AutoDispatchBelowADInplaceOrView kernels_only;
  for (const auto& [r, memory] : made) at::Tensor(memory).copy_(returned[r].toTensor());
}

/// Name of an operator, and shapes and types of its tensors.
std::string description(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  std::ostringstream text;
  text << schema.operator_name();
  const auto add = [&](const at::Tensor& t) {
    if (t.defined()) text << ' ' << t.scalar_type() << t.sizes() << (t.is_cuda() ? "" : " on the host");
  };
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) add(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& t : value.toTensorVector()) add(t);
  }
  return std::move(text).str();
}

/// Any operator on tensors of the device.
void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  const std::vector<c10::IValue> originals(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  const Arguments arguments(originals);
  const torch::jit::Stack& given = arguments.on_host;

  // The host waits for values that it reads, and for a copy from or to its memory unless that does not block.
  const bool host = arguments.reads_the_host(), told = schema.name() == "aten::_local_scalar_dense";
  const bool waits = told || (host && !(schema.name() == "aten::copy_" && given[2].toBool()));
  Recording* const records = recording();
  invariant(records == nullptr || !(host || told), "the host waits for the GPU while its work is recorded");
  if (waits) wait_for(moment(current_stream()));
  const bool later = records != nullptr || (late() && !waits);

  const Running now;
  recording() = nullptr;  // the substitute for the device is not recorded
  const torch::jit::Stack returned = call(op, later ? without_effects(schema, given) : given);
  recording() = records;
  Made made;
  for (std::size_t r = 0; r < returned.size(); ++r) {
    invariant(!returned[r].isList(), "no operator that is used on the simulated GPU returns a list");
    stack->push_back(returned[r].isTensor() ? on_device(schema, arguments, originals, r, returned[r].toTensor(), made)
                                            : returned[r]);
  }
  const bool writes = std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& a) {
    return a.alias_info() != nullptr && a.alias_info()->isWrite();
  });
  const bool launches = writes || !made.empty();
  if (launches && launch_listener()) launch_listener()(description(schema, originals));
  if (!later) return copy_into(made, returned);
  if (launches) submit([op, given, made] { copy_into(made, call(op, given)); });
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   type.value_or(at::kFloat), format);
}
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           type.value_or(at::kFloat));
}
void record_stream(at::Tensor& tensor, at::Stream stream) { used_on(tensor.storage().data_ptr().get(), stream.id()); }

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("record_stream", &record_stream);
  // libtorch dispatches here for a kernel of the device after an operator of all devices.
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&run>());
}
TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }

}  // namespace
}  // namespace trireme::test::gpu

namespace at {
using trireme::test::gpu::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

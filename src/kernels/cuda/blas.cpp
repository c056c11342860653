// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/blas.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <mutex>

#include "kernels/cuda/blas_product.hpp"
#include "kernels/cuda/launch.cuh"
#include "trireme/device/memory.hpp"
#include "trireme/model/product_workspace.hpp"

namespace trireme::kernels::cuda {
namespace {

using Alike = Operands::Alike;

/// Shapes of products with equal strides for which algorithms are measured: those of a training step, of its
/// last chunk, of an evaluation. Further ones (rows of experts, prompts) have one algorithm for all of a rounded size.
constexpr int most_shapes = 4;

bool capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(current_stream(), &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

at::Tensor new_workspace(std::size_t bytes, at::Device device) {
  const device::ChargeTo charge(device::Category::workspace);
  return at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions(at::kByte).device(device));
}

/// Workspace of the products of one stream, which are sequential, and of graphs that are launched on it.
struct KeptWorkspace {
  at::Tensor memory;
  cudaStream_t stream;

  [[nodiscard]] bool serves(at::Device device) const {
    return memory.device() == device && (current_stream() == stream || capturing());
  }
};

struct Products {
  std::mutex mutex;
  std::map<Operands::Key, Product> known;
  std::map<Operands::Key, int> shapes;  ///< by strides: shapes with a separate algorithm
  std::weak_ptr<const KeptWorkspace> kept;
  Measured measured;

  /// None if a product uses cuBLAS's proposal for its own sizes, without a cache: so with deterministic sums, which
  /// must not depend on the order of calls.
  Product* find(const Operands& o) {
    if (const auto found = known.find(o.key(Alike::shape)); found != known.end()) return &found->second;
    int& others = shapes[o.key(Alike::strides)];
    if (others < most_shapes) {
      ++others;
      return &known.try_emplace(o.key(Alike::shape), o, Alike::shape).first->second;
    }
    if (at::globalContext().deterministicAlgorithms()) return nullptr;
    return &known.try_emplace(o.key(Alike::rounded_sizes), o, Alike::rounded_sizes).first->second;
  }

  at::Tensor workspace(std::size_t bytes, at::Device device) const {
    if (bytes == 0) return {};
    const std::shared_ptr<const KeptWorkspace> here = kept.lock();
    return here && here->serves(device) ? here->memory : new_workspace(bytes, device);
  }

  /// Once, with cuBLAS's first proposal.
  bool run_alone(const Operands& o, at::Device device) const {
    const Product product(o, Alike::shape);
    if (!product.possible()) return false;
    const at::Tensor memory = workspace(product.workspace_bytes(false), device);
    return product.run(o, memory.defined() ? memory.mutable_data_ptr() : nullptr);
  }
};
Products& products() {
  static Products all;
  return all;
}

}  // namespace

bool multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& d) {
  const std::optional<Operands> o = Operands::of(a, b, c, d);
  if (!o) return false;
  Products& all = products();
  const std::scoped_lock lock(all.mutex);
  Product* const product = all.find(*o);
  if (product == nullptr) return all.run_alone(*o, a.device());
  if (!product->possible()) return false;
  const bool measures = !product->measured() && !o->in_place() && !capturing();
  const at::Tensor workspace = all.workspace(product->workspace_bytes(measures), a.device());
  void* const memory = workspace.defined() ? workspace.mutable_data_ptr() : nullptr;
  if (measures) {
    all.measured.algorithms += product->measure(*o, memory);
    ++all.measured.shapes;
  }
  if (!product->possible()) return false;
  return product->run(*o, memory) || all.run_alone(*o, a.device());
}

std::shared_ptr<const void> keep_product_workspace(at::Device device) {
  Products& all = products();
  const std::scoped_lock lock(all.mutex);
  if (auto kept = all.kept.lock(); kept && kept->serves(device)) return kept;
  const auto made = std::make_shared<const KeptWorkspace>(
      KeptWorkspace{.memory = new_workspace(static_cast<std::size_t>(model::product_workspace.value), device),
                    .stream = current_stream()});
  all.kept = made;
  return made;
}

Measured measured_products() {
  const std::scoped_lock lock(products().mutex);
  return products().measured;
}

}  // namespace trireme::kernels::cuda

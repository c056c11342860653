// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/blas.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "trireme/base/error.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/model/product_workspace.hpp"

namespace trireme::kernels::cuda {
namespace {

constexpr auto most_workspace = static_cast<std::size_t>(model::product_workspace.value);
constexpr int most_candidates = 8;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw EnvironmentError(fmt::format("cuBLAS could not {}: status {}", what, static_cast<int>(status)));
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* what) const {
    (void)destroy(what);
  }
};
template <class Pointer, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy<destroy>>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cublasLtHandle_t handle() {
  static const cublasLtHandle_t made = [] {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "start");
    return handle;
  }();
  return made;
}

/// A matrix as cuBLAS sees it, column by column: a tensor whose rows are contiguous is its transpose there.
struct Stored {
  void* data = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
  bool transposed = false;  ///< it has to be transposed to be the tensor's transpose
  cudaDataType_t type = CUDA_R_16BF;

  /// The largest power of two up to 256 that divides its address and the bytes between its columns.
  [[nodiscard]] std::uint32_t alignment() const {
    const std::int64_t bytes = type == CUDA_R_32F ? 4 : 2;
    std::uint32_t most = 256;
    while (reinterpret_cast<std::uintptr_t>(data) % most != 0 || stride * bytes % most != 0) most /= 2;
    return most;
  }
};

std::optional<Stored> stored(const at::Tensor& t) {
  const bool by_rows = t.stride(1) == 1 || t.size(1) == 1;
  if (!by_rows && t.stride(0) != 1 && t.size(0) != 1) return std::nullopt;
  const int outer = by_rows ? 0 : 1;
  // The stride of a single row or column is anything.
  return Stored{.data = t.data_ptr(),
                .rows = t.size(1 - outer),
                .columns = t.size(outer),
                .stride = std::max(t.stride(outer), t.size(1 - outer)),
                .transposed = !by_rows,
                .type = t.scalar_type() == at::kFloat ? CUDA_R_32F : CUDA_R_16BF};
}

Layout layout(const Stored& m) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, m.type, static_cast<std::uint64_t>(m.rows),
                                   static_cast<std::uint64_t>(m.columns), m.stride),
        "describe a matrix");
  return Layout(made);
}

/// The operands of one product.
struct Operands {
  Stored a, b, c, d;  ///< a: of the tensors' right factor, as products of transposes are the other way round
  bool adds = false;

  [[nodiscard]] bool in_place() const { return adds && c.data == d.data; }
  /// What cuBLAS's choice depends on.
  [[nodiscard]] std::array<std::int64_t, 17> key() const {
    return {a.rows, a.columns, a.stride, a.transposed,  b.rows,        b.columns, b.stride,      b.transposed, c.stride,
            d.rows, d.columns, d.stride, a.alignment(), b.alignment(), d.type,    c.alignment(), d.alignment()};
  }
};

bool capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(current_stream(), &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

at::Tensor new_workspace(std::size_t bytes, at::Device device) {
  const device::ChargeTo charge(device::Category::workspace);
  return at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions(at::kByte).device(device));
}

/// Of the products of one stream, which come one after the other, and of graphs that are launched on it.
struct KeptWorkspace {
  at::Tensor memory;
  cudaStream_t stream;

  [[nodiscard]] bool serves(at::Device device) const {
    return memory.device() == device && (current_stream() == stream || capturing());
  }
};

/// How cuBLAS computes products of one shape.
class Product {
 public:
  explicit Product(const Operands& o) : a_(layout(o.a)), b_(layout(o.b)), c_(layout(o.c)), d_(layout(o.d)) {
    cublasLtMatmulDesc_t made = nullptr;
    check(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a product");
    description_.reset(made);
    const auto operation = [&](cublasLtMatmulDescAttributes_t which, bool transposed) {
      const cublasOperation_t op = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      check(cublasLtMatmulDescSetAttribute(made, which, &op, sizeof op), "describe a product");
    };
    operation(CUBLASLT_MATMUL_DESC_TRANSA, o.a.transposed);
    operation(CUBLASLT_MATMUL_DESC_TRANSB, o.b.transposed);
    find(o);
  }

  [[nodiscard]] bool possible() const { return count_ > 0; }
  [[nodiscard]] bool measured() const { return measured_; }

  /// The most that a candidate, or the one that runs, needs.
  [[nodiscard]] std::size_t workspace_bytes(bool of_all) const {
    std::size_t most = candidates_.at(best_).workspaceSize;
    for (std::size_t i = 0; of_all && i < count_; ++i) most = std::max(most, candidates_.at(i).workspaceSize);
    return most;
  }

  void run(const Operands& o, void* workspace) const { check(run(o, candidates_.at(best_), workspace), "multiply"); }

  /// Makes the fastest candidate the one that runs, and says how many there were. Overwrites d; waits for the stream.
  int measure(const Operands& o, void* workspace) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < count_; ++i) {
      const double time = seconds(o, candidates_.at(i), workspace);
      if (time < 0.97 * least) {  // a tie goes to cuBLAS's own order
        least = time;
        best_ = i;
      }
    }
    measured_ = true;
    const auto tried = static_cast<int>(count_);
    if (least == std::numeric_limits<double>::infinity()) count_ = 0;
    return tried;
  }

 private:
  void find(const Operands& o) {
    cublasLtMatmulPreference_t made = nullptr;
    check(cublasLtMatmulPreferenceCreate(&made), "look for algorithms");
    const Preference preference(made);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(made, which, &value, sizeof value), "look for algorithms");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_workspace);
    // No partial sums in bf16.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, o.a.alignment());
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, o.b.alignment());
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, o.c.alignment());
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, o.d.alignment());
    const bool one = at::globalContext().deterministicAlgorithms();
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle(), description_.get(), a_.get(), b_.get(), c_.get(), d_.get(), made,
                                       one ? 1 : most_candidates, candidates_.data(), &found);
    count_ = status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(found) : 0;
    measured_ = one;  // nothing is left to choose
  }

  cublasStatus_t run(const Operands& o, const cublasLtMatmulHeuristicResult_t& candidate, void* workspace) const {
    const float alpha = 1, beta = o.adds ? 1 : 0;
    return cublasLtMatmul(handle(), description_.get(), &alpha, o.a.data, a_.get(), o.b.data, b_.get(), &beta, o.c.data,
                          c_.get(), o.d.data, d_.get(), &candidate.algo, workspace, candidate.workspaceSize,
                          current_stream());
  }

  /// The best of a few runs after a first one; infinite where the candidate cannot run.
  double seconds(const Operands& o, const cublasLtMatmulHeuristicResult_t& candidate, void* workspace) const {
    using Clock = std::chrono::steady_clock;
    const cudaStream_t stream = current_stream();
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 4; ++i) {
      (void)cudaStreamSynchronize(stream);
      const auto begin = Clock::now();
      if (run(o, candidate, workspace) != CUBLAS_STATUS_SUCCESS || cudaStreamSynchronize(stream) != cudaSuccess)
        return std::numeric_limits<double>::infinity();
      if (i > 0) best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return best;
  }

  Description description_;
  Layout a_, b_, c_, d_;
  std::array<cublasLtMatmulHeuristicResult_t, most_candidates> candidates_{};
  std::size_t count_ = 0, best_ = 0;
  bool measured_ = false;
};

struct Products {
  std::mutex mutex;
  std::map<std::array<std::int64_t, 17>, Product> by_shape;
  std::weak_ptr<const KeptWorkspace> kept;
  Measured measured;
};
Products& products() {
  static Products all;
  return all;
}

bool is_bf16(const at::Tensor& t) { return t.scalar_type() == at::kBFloat16; }

std::optional<Operands> operands(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& d) {
  if (!is_bf16(a) || !is_bf16(b) || d.numel() == 0 || a.numel() == 0) return std::nullopt;
  const at::Tensor& added = c.defined() ? c : d;
  const auto left = stored(a), right = stored(b), third = stored(added), result = stored(d);
  if (!left || !right || !third || !result || third->transposed || result->transposed || third->type != result->type)
    return std::nullopt;
  return Operands{.a = *right, .b = *left, .c = *third, .d = *result, .adds = c.defined()};
}

}  // namespace

bool multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& d) {
  const std::optional<Operands> o = operands(a, b, c, d);
  if (!o) return false;
  Products& all = products();
  const std::scoped_lock lock(all.mutex);
  auto found = all.by_shape.find(o->key());
  if (found == all.by_shape.end()) found = all.by_shape.try_emplace(o->key(), *o).first;
  Product& product = found->second;
  if (!product.possible()) return false;
  const bool measures = !product.measured() && !o->in_place() && !capturing();
  at::Tensor workspace;
  if (const std::size_t needed = product.workspace_bytes(measures); needed > 0) {
    const std::shared_ptr<const KeptWorkspace> kept = all.kept.lock();
    workspace = kept && kept->serves(a.device()) ? kept->memory : new_workspace(needed, a.device());
  }
  void* const memory = workspace.defined() ? workspace.mutable_data_ptr() : nullptr;
  if (measures) {
    all.measured.algorithms += product.measure(*o, memory);
    ++all.measured.shapes;
  }
  if (!product.possible()) return false;
  product.run(*o, memory);
  return true;
}

std::shared_ptr<const void> keep_product_workspace(at::Device device) {
  Products& all = products();
  const std::scoped_lock lock(all.mutex);
  if (auto kept = all.kept.lock(); kept && kept->serves(device)) return kept;
  const auto made = std::make_shared<const KeptWorkspace>(
      KeptWorkspace{.memory = new_workspace(most_workspace, device), .stream = current_stream()});
  all.kept = made;
  return made;
}

Measured measured_products() {
  const std::scoped_lock lock(products().mutex);
  return products().measured;
}

}  // namespace trireme::kernels::cuda

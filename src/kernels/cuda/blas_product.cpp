// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/blas_product.hpp"

#include <ATen/Context.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include "kernels/cuda/launch.cuh"
#include "trireme/base/error.hpp"
#include "trireme/model/product_workspace.hpp"

namespace trireme::kernels::cuda {
namespace {

constexpr auto most_workspace = static_cast<std::size_t>(model::product_workspace.value);
constexpr std::uint32_t common_alignment = 16;  ///< of rows of a multiple of 8 elements of bf16, for any first row

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw EnvironmentError(fmt::format("cuBLAS could not {}: status {}", what, static_cast<int>(status)));
}

struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t made) const { (void)cublasLtMatmulPreferenceDestroy(made); }
};
using Preference = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, DestroyPreference>;

cublasLtHandle_t handle() {
  static const cublasLtHandle_t made = [] {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "start");
    return handle;
  }();
  return made;
}

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

/// For one call: nothing is allocated.
class Layout {
 public:
  explicit Layout(const Stored& m) {
    check(cublasLtMatrixLayoutInit(&here_, m.type, static_cast<std::uint64_t>(m.rows),
                                   static_cast<std::uint64_t>(m.columns), m.stride),
          "describe a matrix");
  }
  operator cublasLtMatrixLayout_t() { return &here_; }  // NOLINT(google-explicit-constructor): a handle

 private:
  cublasLtMatrixLayoutOpaque_t here_{};
};

bool is_bf16(const at::Tensor& t) { return t.scalar_type() == at::kBFloat16; }

}  // namespace

std::uint32_t Stored::alignment() const {
  const std::int64_t bytes = type == CUDA_R_32F ? 4 : 2;
  std::uint32_t most = 256;
  while (reinterpret_cast<std::uintptr_t>(data) % most != 0 || stride * bytes % most != 0) most /= 2;
  return most;
}

std::optional<Operands> Operands::of(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                                     const at::Tensor& d) {
  if (!is_bf16(a) || !is_bf16(b) || d.numel() == 0 || a.numel() == 0) return std::nullopt;
  const at::Tensor& added = c.defined() ? c : d;
  const auto left = stored(a), right = stored(b), third = stored(added), result = stored(d);
  if (!left || !right || !third || !result || third->transposed || result->transposed || third->type != result->type)
    return std::nullopt;
  return Operands{.a = *right, .b = *left, .c = *third, .d = *result, .adds = c.defined()};
}

Operands::Key Operands::key(Alike alike) const {
  const auto size = [&](std::int64_t of) {
    return alike == Alike::shape           ? of
           : alike == Alike::rounded_sizes ? static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(of)))
                                           : 0;
  };
  const auto alignment = [&](const Stored& of) -> std::int64_t {
    return alike == Alike::shape           ? of.alignment()
           : alike == Alike::rounded_sizes ? std::min(common_alignment, of.alignment())
                                           : 0;
  };
  return {size(a.rows), size(a.columns), a.stride, a.transposed, size(b.rows),    size(b.columns),
          b.stride,     b.transposed,    c.stride, size(d.rows), size(d.columns), d.stride,
          alignment(a), alignment(b),    d.type,   alignment(c), alignment(d)};
}

Product::Product(const Operands& o, Operands::Alike alike, int most) : alike_(alike) {
  cublasLtMatmulDesc_t made = nullptr;
  check(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a product");
  description_.reset(made);
  const auto operation = [&](cublasLtMatmulDescAttributes_t which, bool transposed) {
    const cublasOperation_t op = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(made, which, &op, sizeof op), "describe a product");
  };
  operation(CUBLASLT_MATMUL_DESC_TRANSA, o.a.transposed);
  operation(CUBLASLT_MATMUL_DESC_TRANSB, o.b.transposed);
  find(o, most);
}

std::size_t Product::workspace_bytes(bool of_all) const {
  if (alike_ != Operands::Alike::shape) return most_workspace;  // other sizes may need more than those that were seen
  std::size_t most = candidates_.at(best_).workspaceSize;
  for (std::size_t i = 0; of_all && i < candidates_.size(); ++i) most = std::max(most, candidates_[i].workspaceSize);
  return most;
}

bool Product::run(const Operands& o, void* workspace) const {
  const cublasStatus_t status = run(o, best_, workspace);
  if (alike_ != Operands::Alike::shape &&
      (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE))
    return false;
  check(status, "multiply");
  return true;
}

int Product::measure(const Operands& o, void* workspace) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const double time = seconds(o, i, workspace);
    if (time < 0.97 * least) {  // prefers cuBLAS's own order in a tie
      least = time;
      best_ = i;
    }
  }
  measured_ = true;
  const auto tried = static_cast<int>(candidates_.size());
  if (least == std::numeric_limits<double>::infinity()) candidates_.clear();
  return tried;
}

void Product::find(const Operands& o, int most) {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made), "look for algorithms");
  const Preference preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(made, which, &value, sizeof value), "look for algorithms");
  };
  const std::uint32_t alignment = alike_ == Operands::Alike::shape ? 256 : common_alignment;
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_workspace);
  // No partial sums in bf16.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::min(alignment, o.a.alignment()));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::min(alignment, o.b.alignment()));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::min(alignment, o.c.alignment()));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::min(alignment, o.d.alignment()));
  const bool one = at::globalContext().deterministicAlgorithms();
  candidates_.resize(static_cast<std::size_t>(one ? 1 : most));
  int found = 0;
  Layout a(o.a), b(o.b), c(o.c), d(o.d);
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle(), description_.get(), a, b, c, d, made, static_cast<int>(candidates_.size()), candidates_.data(), &found);
  candidates_.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(found) : 0);
  measured_ = one;  // nothing is left to choose
}

cublasStatus_t Product::run(const Operands& o, std::size_t candidate, void* workspace) const {
  const float alpha = 1, beta = o.adds ? 1 : 0;
  const cublasLtMatmulHeuristicResult_t& with = candidates_.at(candidate);
  Layout a(o.a), b(o.b), c(o.c), d(o.d);
  return cublasLtMatmul(handle(), description_.get(), &alpha, o.a.data, a, o.b.data, b, &beta, o.c.data, c, o.d.data, d,
                        &with.algo, workspace, alike_ == Operands::Alike::shape ? with.workspaceSize : most_workspace,
                        current_stream());
}

double Product::seconds(const Operands& o, std::size_t candidate, void* workspace) const {
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

}  // namespace trireme::kernels::cuda

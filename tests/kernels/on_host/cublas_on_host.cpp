// SPDX-License-Identifier: Apache-2.0
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cublasLt.h"

struct SimulatedMatmul {
  std::array<cublasOperation_t, 2> operations{CUBLAS_OP_N, CUBLAS_OP_N};
};
using SimulatedLayout = cublasLtMatrixLayoutOpaque_t;
struct SimulatedPreference {
  std::array<std::uint32_t, 4> alignments{256, 256, 256, 256};
};

namespace {

constexpr int slow = 0, failing = 1, with_workspace = 2, algorithms = 4;
/// Workspace of a sum of k terms.
std::size_t workspace_bytes_needed(std::int64_t k) { return static_cast<std::size_t>(8 * k); }
std::array<std::atomic<int>, algorithms> products{};

void expect(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "simulated cuBLASLt: %s\n", what);
  std::abort();
}

struct Shape {
  std::int64_t m, n, k;
};
/// op(a) [m, k], op(b) [k, n], c and d [m, n], all stored column by column.
Shape shape_of(const SimulatedMatmul& product, const SimulatedLayout& a, const SimulatedLayout& b,
               const SimulatedLayout& c, const SimulatedLayout& d) {
  for (const SimulatedLayout* each : {&a, &b, &c, &d}) expect(each->stride >= each->rows, "columns overlap");
  const bool ta = product.operations[0] == CUBLAS_OP_T, tb = product.operations[1] == CUBLAS_OP_T;
  const Shape s{ta ? a.columns : a.rows, tb ? b.rows : b.columns, ta ? a.rows : a.columns};
  expect((tb ? b.columns : b.rows) == s.k, "the factors do not fit");
  expect(d.rows == s.m && d.columns == s.n && c.rows == s.m && c.columns == s.n, "the result does not fit");
  expect(a.type == CUDA_R_16BF && b.type == CUDA_R_16BF && c.type == d.type,
         "types that cuBLAS does not have together");
  return s;
}

float read(const void* data, cudaDataType_t type, std::int64_t at) {
  return type == CUDA_R_32F ? static_cast<const float*>(data)[at]
                            : static_cast<float>(static_cast<const c10::BFloat16*>(data)[at]);
}

/// op(x) row by row: [rows, columns].
std::vector<float> values(const void* x, const SimulatedLayout& l, bool transposed, std::int64_t rows,
                          std::int64_t columns) {
  std::vector<float> all(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      all[static_cast<std::size_t>(i * columns + j)] =
          read(x, l.type, transposed ? i * l.stride + j : j * l.stride + i);
  return all;
}

/// In one order for each `found_for`, as algorithms are that cuBLAS finds for several sizes.
float dot(const float* x, const float* y, std::int64_t count, std::uint64_t found_for) {
  std::array<float, 8> sums{};
  const std::int64_t lanes = 8 - static_cast<std::int64_t>(found_for % 3);
  std::int64_t l = 0;
  for (; l + lanes <= count; l += lanes)
    for (std::int64_t u = 0; u < lanes; ++u) sums[static_cast<std::size_t>(u)] += x[l + u] * y[l + u];
  for (; l < count; ++l) sums[0] += x[l] * y[l];
  float sum = 0;
  for (const float each : sums) sum += each;
  return sum;
}

}  // namespace

namespace trireme::test {

int products_by(int algorithm) { return products.at(static_cast<std::size_t>(algorithm)); }

}  // namespace trireme::test

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int one = 0;
  *handle = &one;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t scale) {
  expect(scale == CUDA_R_32F, "factors are fp32");
  *made = new SimulatedMatmul;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t of) {
  delete of;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t which,
                                              const void* value, std::size_t bytes) {
  expect(bytes == sizeof(cublasOperation_t), "an operation has another size");
  std::memcpy(&of->operations.at(which == CUBLASLT_MATMUL_DESC_TRANSA ? 0 : 1), value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t made, cudaDataType_t type, std::uint64_t rows,
                                        std::uint64_t columns, std::int64_t stride) {
  *made = {type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = new SimulatedPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t of) {
  delete of;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void* value,
                                                    std::size_t bytes) {
  if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    expect(bytes == sizeof(std::uint64_t), "the workspace is counted in 64 bits");
  } else {
    expect(bytes == sizeof(std::uint32_t), "an attribute has 32 bits");
    if (which >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
      std::memcpy(&of->alignments.at(which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  const Shape shape = shape_of(*product, *a, *b, *c, *d);
  *found = std::min(most, algorithms);
  for (int i = 0; i < *found; ++i) {
    results[i] = {.algo = {}, .workspaceSize = i == with_workspace ? workspace_bytes_needed(shape.k) : 0, .state = {}};
    results[i].algo.data[0] = static_cast<std::uint64_t>(i);
    for (std::size_t operand = 0; operand < 4; ++operand)  // what the algorithm relies on
      results[i].algo.data[1 + operand] = preference->alignments.at(operand);
    results[i].algo.data[5] = static_cast<std::uint64_t>(shape.k);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t) {
  const auto number = static_cast<int>(algorithm->data[0]);
  const std::int64_t terms = shape_of(*product, *layout_a, *layout_b, *layout_c, *layout_d).k;
  const bool refused = terms % 64 == 1 && terms != static_cast<std::int64_t>(algorithm->data[5]);
  if (number == failing || refused) return CUBLAS_STATUS_NOT_SUPPORTED;
  expect(number != with_workspace || (workspace != nullptr && workspace_bytes >= workspace_bytes_needed(terms)),
         "a workspace is missing");
  const std::array<const void*, 4> addresses{a, b, c, d};
  for (std::size_t operand = 0; operand < 4; ++operand)
    expect(reinterpret_cast<std::uintptr_t>(addresses.at(operand)) % algorithm->data[1 + operand] == 0,
           "an operand is not aligned as the algorithm was promised");
  ++products.at(static_cast<std::size_t>(number));
  const auto run = [=, found_for = algorithm->data[5], of = *product, la = *layout_a, lb = *layout_b, lc = *layout_c,
                    ld = *layout_d, scale = *static_cast<const float*>(alpha),
                    keep = *static_cast<const float*>(beta)] {
    const Shape s = shape_of(of, la, lb, lc, ld);
    const auto x = values(a, la, of.operations[0] == CUBLAS_OP_T, s.m, s.k);
    const auto y = values(b, lb, of.operations[1] == CUBLAS_OP_N, s.n, s.k);  // transposed: both go along k
    if (number == with_workspace) std::memset(workspace, 0xff, workspace_bytes_needed(s.k));
    for (int again = number == slow ? 6 : 1; again > 0; --again)
      for (std::int64_t j = 0; j < s.n; ++j)
        for (std::int64_t i = 0; i < s.m; ++i) {
          float sum = scale * dot(x.data() + i * s.k, y.data() + j * s.k, s.k, found_for);
          if (again > 1) continue;
          if (keep != 0) sum += keep * read(c, lc.type, j * lc.stride + i);
          if (ld.type == CUDA_R_32F)
            static_cast<float*>(d)[j * ld.stride + i] = sum;
          else
            static_cast<c10::BFloat16*>(d)[j * ld.stride + i] = static_cast<c10::BFloat16>(sum);
        }
  };
  if (trireme::test::launch_listener != nullptr) {
    const Shape s = shape_of(*product, *layout_a, *layout_b, *layout_c, *layout_d);
    trireme::test::launch_listener(
        nullptr, {static_cast<unsigned>(s.m), static_cast<unsigned>(s.n), static_cast<unsigned>(s.k)}, {}, 0);
  }
  if (trireme::test::launcher != nullptr)
    trireme::test::launcher(run);
  else
    run();
  return CUBLAS_STATUS_SUCCESS;
}

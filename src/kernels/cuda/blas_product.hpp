// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

/// Products by cuBLASLt: their operands, and the algorithms of each shape.
namespace trireme::kernels::cuda {

/// A matrix as cuBLAS sees it, column by column: a tensor whose rows are contiguous is its transpose there.
struct Stored {
  void* data = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
  bool transposed = false;  ///< it has to be transposed to be the tensor's transpose
  cudaDataType_t type = CUDA_R_16BF;

  /// The largest power of two up to 256 that divides its address and the bytes between its columns.
  [[nodiscard]] std::uint32_t alignment() const;
};

/// The operands of one product.
struct Operands {
  using Key = std::array<std::int64_t, 17>;
  /// Products that share a key: equal shapes; sizes that round up to the same powers of two, with any
  /// strides; equal strides, with any sizes.
  enum class Alike { shape, rounded_sizes, strides };

  Stored a, b, c, d;  ///< a: of the tensors' right factor, as products of transposes are the other way round
  bool adds = false;

  /// Operands of d = a b, or a b + c; none if cuBLAS is not used.
  static std::optional<Operands> of(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& d);
  [[nodiscard]] bool in_place() const { return adds && c.data == d.data; }
  /// Inputs of cuBLAS's choice.
  [[nodiscard]] Key key(Alike alike) const;
};

/// cuBLAS algorithms for products with one key.
class Product {
 public:
  /// most: candidates that `measure` compares.
  Product(const Operands& o, Operands::Alike alike, int most = 8);

  [[nodiscard]] bool possible() const { return !candidates_.empty(); }
  [[nodiscard]] bool measured() const { return measured_; }
  /// Workspace of the selected candidate, or the largest of all candidates.
  [[nodiscard]] std::size_t workspace_bytes(bool of_all) const;
  /// False if its algorithm, found for other sizes, does not take these. workspace: of `workspace_bytes`.
  [[nodiscard]] bool run(const Operands& o, void* workspace) const;
  /// Selects the fastest candidate and returns their number. Overwrites d; waits for the stream.
  int measure(const Operands& o, void* workspace);

 private:
  struct Destroy {
    void operator()(cublasLtMatmulDesc_t made) const { (void)cublasLtMatmulDescDestroy(made); }
  };

  void find(const Operands& o, int most);
  [[nodiscard]] cublasStatus_t run(const Operands& o, std::size_t candidate, void* workspace) const;
  /// The best of a few runs after a first one; infinite if the candidate cannot run.
  [[nodiscard]] double seconds(const Operands& o, std::size_t candidate, void* workspace) const;

  std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy> description_;
  Operands::Alike alike_;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates_;
  std::size_t best_ = 0;
  bool measured_ = false;
};

}  // namespace trireme::kernels::cuda

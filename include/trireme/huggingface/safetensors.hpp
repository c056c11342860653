// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/io/file.hpp"
#include "trireme/base/units.hpp"
#include "trireme/shard/layout.hpp"

/// The safetensors format: 8 bytes of header length (little endian), a JSON header, the tensors' bytes without gaps
/// (https://github.com/huggingface/safetensors#format).
namespace trireme::huggingface {

/// The longest header that readers accept, in bytes.
inline constexpr std::int64_t most_header_bytes = 100'000'000;

/// One tensor as the header describes it.
struct TensorInfo {
  std::string dtype;                ///< as the format spells it: "F32", "BF16", "I64"
  std::vector<std::int64_t> shape;  ///< row-major
  std::int64_t begin = 0;           ///< first byte in the file
  std::int64_t end = 0;             ///< one past the last byte in the file

  [[nodiscard]] std::int64_t elements() const;
  /// True when it holds its values as floating-point numbers: F32, BF16 or F16.
  [[nodiscard]] bool readable() const;
  /// F8_E4M3: its values are times scales that other tensors hold.
  [[nodiscard]] bool scaled() const;
};

using TensorTable = std::map<std::string, TensorInfo, std::less<>>;

/// A safetensors file open for reading. The header is checked as a whole when it is opened; tensors are read on demand.
class SafetensorsFile {
 public:
  /// Throws CheckpointError, naming file and tensor, when the header is longer than the file or than
  /// `most_header_bytes`, is not JSON, repeats a key, has an unknown dtype, offsets out of bounds, overlapping or with
  /// gaps, or a size that is not the shape's.
  [[nodiscard]] static SafetensorsFile open(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const TensorTable& tensors() const { return tensors_; }

  /// Reads `elements` (row-major, any range within the tensor) of tensor `name` into `values`, of the same size, from
  /// F32, BF16 or F16, or from F8_E4M3 without its scale. Reads only these bytes. Throws CheckpointError when there is
  /// no such tensor, or it has another dtype, or the file cannot be read.
  void read_fp32(std::string_view name, shard::Range elements, std::span<float> values) const;

 private:
  SafetensorsFile(io::File file, TensorTable tensors) : file_(std::move(file)), tensors_(std::move(tensors)) {}

  io::File file_;
  TensorTable tensors_;
};

/// A tensor to be written.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::fp32;

  [[nodiscard]] std::int64_t elements() const;
};

/// Writes a safetensors file front to back: tensors are declared first, then their values appended in the same order,
/// in pieces of any size. The file appears under its name when `finish` has flushed it to disk; before, there is only
/// `<path>.partial`, which the destructor removes.
class SafetensorsWriter {
 public:
  /// fp32 tensors must not follow a bf16 tensor of odd size (they would be misaligned). Throws WriteError.
  SafetensorsWriter(std::string path, std::vector<TensorSpec> tensors);
  /// Appends values, rounded to nearest even where the tensor is bf16. May reach over several tensors. Throws
  /// WriteError.
  void append(std::span<const float> values);
  /// Flushes to disk and renames the file; every declared value must have been appended. Throws WriteError.
  void finish();

 private:
  /// Removes the temporary file unless it was renamed, also when the constructor fails.
  struct Partial {
    std::string path;
    bool renamed = false;
    explicit Partial(std::string name) : path(std::move(name)) {}
    Partial(const Partial&) = delete;
    Partial& operator=(const Partial&) = delete;
    ~Partial();
  };

  void append_bf16(std::span<const float> values);

  std::string path_;
  std::vector<TensorSpec> tensors_;
  std::size_t current_ = 0;   ///< tensor that the next value belongs to
  std::int64_t written_ = 0;  ///< elements of the current tensor written so far
  Partial partial_;
  io::File file_;
};

}  // namespace trireme::huggingface

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/io/json.hpp"
#include "huggingface/half.hpp"
#include "huggingface/safetensors_header.hpp"
#include "trireme/base/error.hpp"

namespace trireme::huggingface {

namespace {

constexpr std::size_t elements_per_read = 1 << 20;

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Reads 16-bit words from `offset` on and converts them one by one.
template <float (*convert)(std::uint16_t)>
void read_words(const io::File& file, std::int64_t offset, std::span<float> values) {
  std::vector<std::uint16_t> words(std::min(values.size(), elements_per_read));
  while (!values.empty()) {
    const std::span piece = std::span(words).first(std::min(words.size(), values.size()));
    file.read_at(offset, std::as_writable_bytes(piece));
    std::transform(piece.begin(), piece.end(), values.begin(), convert);
    offset += static_cast<std::int64_t>(piece.size_bytes());
    values = values.subspan(piece.size());
  }
}

}  // namespace

std::int64_t TensorInfo::elements() const { return product(shape); }

std::int64_t TensorSpec::elements() const { return product(shape); }

bool TensorInfo::readable() const { return dtype == "F32" || dtype == "BF16" || dtype == "F16"; }

bool TensorInfo::scaled() const { return dtype == "F8_E4M3"; }

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  io::File file = io::File::open(path);
  TensorTable tensors = read_header(file);
  return {std::move(file), std::move(tensors)};
}

void SafetensorsFile::read_fp32(std::string_view name, shard::Range elements, std::span<float> values) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw CheckpointError(fmt::format("{}: has no tensor {} among its {}; check that it belongs to this model", path(),
                                      io::in_quotes(name), tensors_.size()));
  }
  const TensorInfo& tensor = found->second;
  invariant(elements.begin >= 0 && elements.begin <= elements.end && elements.end <= tensor.elements(),
            "elements to read lie within their tensor");
  invariant(elements.size() == static_cast<std::int64_t>(values.size()),
            "as many values are read as there is room for");
  if (tensor.dtype == "F32") {
    file_.read_at(tensor.begin + elements.begin * 4, std::as_writable_bytes(values));
  } else if (tensor.dtype == "BF16") {
    read_words<bf16_to_float>(file_, tensor.begin + elements.begin * 2, values);
  } else if (tensor.dtype == "F16") {
    read_words<fp16_to_float>(file_, tensor.begin + elements.begin * 2, values);
  } else if (tensor.scaled()) {
    std::vector<std::uint8_t> bytes(values.size());
    file_.read_at(tensor.begin + elements.begin, std::as_writable_bytes(std::span(bytes)));
    std::ranges::transform(bytes, values.begin(), e4m3_to_float);
  } else {
    throw CheckpointError(
        fmt::format("{}: tensor {} has dtype {}; F32, BF16 and F16 can be read, convert it to one of them", path(),
                    io::in_quotes(name), tensor.dtype));
  }
}

}  // namespace trireme::huggingface

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "huggingface/half.hpp"
#include "huggingface/safetensors_header.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/io/output.hpp"

namespace trireme::huggingface {

namespace {

constexpr std::size_t elements_per_write = 1 << 20;

}  // namespace

SafetensorsWriter::Partial::~Partial() {
  std::error_code ignored;  // an error is already on its way
  if (!renamed) std::filesystem::remove(path, ignored);
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorSpec> tensors)
    : path_(std::move(path)),
      tensors_(std::move(tensors)),
      partial_(path_ + ".partial"),
      file_(io::File::create(partial_.path)) {
  const std::string header = make_header(tensors_);
  file_.write(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::append(std::span<const float> values) {
  fault::point("export.write");
  while (!values.empty()) {
    invariant(current_ < tensors_.size(), "no more values are appended than were declared");
    const TensorSpec& tensor = tensors_[current_];
    const std::int64_t left = tensor.elements() - written_;
    const std::span piece = values.first(std::min(values.size(), static_cast<std::size_t>(left)));
    if (tensor.dtype == DType::fp32) {
      file_.write(std::as_bytes(piece));
    } else {
      append_bf16(piece);
    }
    written_ += static_cast<std::int64_t>(piece.size());
    values = values.subspan(piece.size());
    if (written_ == tensor.elements()) {
      ++current_;
      written_ = 0;
    }
  }
}

void SafetensorsWriter::append_bf16(std::span<const float> values) {
  std::vector<std::uint16_t> words(std::min(values.size(), elements_per_write));
  while (!values.empty()) {
    const std::span piece = std::span(words).first(std::min(words.size(), values.size()));
    std::transform(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(piece.size()), piece.begin(),
                   float_to_bf16);
    file_.write(std::as_bytes(piece));
    values = values.subspan(piece.size());
  }
}

void SafetensorsWriter::finish() {
  while (current_ < tensors_.size() && tensors_[current_].elements() == 0) ++current_;
  invariant(current_ == tensors_.size(), "every declared value is appended before a safetensors file is finished");
  file_.sync_and_close();
  io::rename_over(partial_.path, path_);
  partial_.renamed = true;
  const std::string directory = std::filesystem::path(path_).parent_path().string();
  io::sync_directory(directory.empty() ? "." : directory);
}

}  // namespace trireme::huggingface

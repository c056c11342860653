// SPDX-License-Identifier: Apache-2.0
#include "huggingface/safetensors_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/io/json.hpp"
#include "trireme/base/error.hpp"

namespace trireme::huggingface {

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

constexpr std::int64_t length_bytes = 8;
constexpr std::string_view writer = "trireme";
constexpr std::string_view copy_again = "the file is damaged, copy or download it again";

struct KnownType {
  std::string_view name;
  std::int64_t bits;
};

/// Everything that the format defines, so that a file with tensors other than the weights can be described.
constexpr std::array known_types = {
    KnownType{"F32", 32},        KnownType{"BF16", 16},       KnownType{"F16", 16},    KnownType{"F64", 64},
    KnownType{"I64", 64},        KnownType{"U64", 64},        KnownType{"I32", 32},    KnownType{"U32", 32},
    KnownType{"I16", 16},        KnownType{"U16", 16},        KnownType{"I8", 8},      KnownType{"U8", 8},
    KnownType{"BOOL", 8},        KnownType{"F8_E4M3", 8},     KnownType{"F8_E5M2", 8}, KnownType{"F8_E8M0", 8},
    KnownType{"F6_E2M3", 6},     KnownType{"F6_E3M2", 6},     KnownType{"F4", 4},      KnownType{"C64", 64},
    KnownType{"F8_E4M3FNUZ", 8}, KnownType{"F8_E5M2FNUZ", 8},
};

[[noreturn]] void damaged(const io::File& file, const std::string& what) {
  throw CheckpointError(fmt::format("{}: {}; {}", file.path(), what, copy_again));
}

[[noreturn]] void damaged(const io::File& file, const std::string& tensor, const std::string& what) {
  damaged(file, fmt::format("tensor {} {}", io::in_quotes(tensor), what));
}

std::int64_t header_length(const io::File& file) {
  if (file.size() < length_bytes) {
    damaged(file, fmt::format("has {} bytes, a safetensors file starts with {} bytes of header length", file.size(),
                              length_bytes));
  }
  std::uint64_t length = 0;
  file.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  std::array<char, length_bytes> text{};
  std::memcpy(text.data(), &length, sizeof length);
  if (std::string_view(text.data(), text.size()) == "version ") {
    throw CheckpointError(
        fmt::format("{}: is a Git LFS pointer, not the weights; run `git lfs pull` in its directory", file.path()));
  }
  if (length > static_cast<std::uint64_t>(most_header_bytes)) {
    damaged(file, fmt::format("gives its header {} bytes, at most {} are allowed", length, most_header_bytes));
  }
  if (static_cast<std::int64_t>(length) > file.size() - length_bytes) {
    damaged(file, fmt::format("gives its header {} bytes, but has only {} after the length", length,
                              file.size() - length_bytes));
  }
  return static_cast<std::int64_t>(length);
}

const json& member(const io::File& file, const std::string& tensor, const json& entry, const char* key) {
  if (!entry.is_object() || !entry.contains(key)) damaged(file, tensor, fmt::format("has no {}", key));
  return entry[key];
}

/// The numbers of a list, each from 0 to `most`.
std::vector<std::int64_t> numbers(const io::File& file, const std::string& tensor, const json& list, const char* key,
                                  std::int64_t most) {
  if (!list.is_array()) damaged(file, tensor, fmt::format("has a {} that is not a list of numbers", key));
  std::vector<std::int64_t> values;
  for (const json& value : list) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
      damaged(file, tensor,
              fmt::format("has {} in its {}, allowed are whole numbers from 0 to {}", io::in_quotes(value.dump()), key,
                          most));
    }
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

std::int64_t bits_of(const io::File& file, const std::string& tensor, const std::string& dtype) {
  const auto* const found =
      std::find_if(known_types.begin(), known_types.end(), [&](const KnownType& t) { return t.name == dtype; });
  if (found == known_types.end()) {
    throw CheckpointError(fmt::format(
        "{}: tensor {} has dtype {}, which is not one of safetensors'; write the file with F32, BF16 or F16",
        file.path(), io::in_quotes(tensor), io::in_quotes(dtype)));
  }
  return found->bits;
}

/// Bytes that a tensor of this shape takes; nothing when there are more than the file could ever hold, or half a byte
/// too many.
std::optional<std::int64_t> bytes_of(const std::vector<std::int64_t>& shape, std::int64_t bits) {
  std::int64_t total = bits;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(total, size, &total)) return std::nullopt;
  }
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

TensorInfo describe(const io::File& file, const std::string& name, const json& entry, std::int64_t data_begin) {
  const std::int64_t data_bytes = file.size() - data_begin;
  const json& dtype = member(file, name, entry, "dtype");
  if (!dtype.is_string()) damaged(file, name, "has a dtype that is not a name");
  TensorInfo info{.dtype = dtype.get<std::string>(), .shape = {}};
  const std::int64_t bits = bits_of(file, name, info.dtype);
  info.shape = numbers(file, name, member(file, name, entry, "shape"), "shape", std::int64_t{1} << 60);
  const auto offsets =
      numbers(file, name, member(file, name, entry, "data_offsets"), "data_offsets", std::int64_t{1} << 60);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    damaged(file, name, fmt::format("has data_offsets {}, expected [begin, end]", offsets));
  }
  if (offsets[1] > data_bytes) {
    damaged(file, name, fmt::format("ends at byte {} of the data, but the file has only {}", offsets[1], data_bytes));
  }
  if (const auto expected = bytes_of(info.shape, bits); expected != offsets[1] - offsets[0]) {
    damaged(file, name,
            fmt::format("has {} bytes, but shape {} of {} takes {}", offsets[1] - offsets[0], info.shape, info.dtype,
                        expected ? fmt::to_string(*expected) : "a number of bytes that cannot be"));
  }
  info.begin = data_begin + offsets[0];
  info.end = data_begin + offsets[1];
  return info;
}

/// The format requires every byte of data to be owned by exactly one tensor: a hole or an overlap is a mistake
/// or malice.
void check_coverage(const io::File& file, const TensorTable& tensors, std::int64_t data_begin) {
  std::vector<const TensorTable::value_type*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::int64_t end = data_begin;
  const std::string* previous = nullptr;
  for (const auto* tensor : order) {
    const auto& [name, info] = *tensor;
    if (info.begin < end) damaged(file, name, fmt::format("overlaps tensor {}", io::in_quotes(*previous)));
    if (info.begin > end)
      damaged(file, name, fmt::format("leaves {} bytes before it that belong to no tensor", info.begin - end));
    end = info.end;
    previous = &name;
  }
  if (end != file.size())
    damaged(file, fmt::format("has {} bytes at its end that belong to no tensor", file.size() - end));
}

json header_of(const io::File& file) {
  std::string text(static_cast<std::size_t>(header_length(file)), '\0');
  file.read_at(length_bytes, std::as_writable_bytes(std::span(text)));
  json header = io::parse_json(file.path(), text);
  if (!header.is_object()) damaged(file, "has a header that is not a table of tensors");
  return header;
}

}  // namespace

bool is_written_by_trireme(const io::File& file) {
  const json metadata = header_of(file).value("__metadata__", json());
  return metadata.is_object() && metadata.value("writer", json()) == writer;
}

TensorTable read_header(const io::File& file) {
  const json header = header_of(file);
  const std::int64_t data_begin = length_bytes + header_length(file);
  TensorTable tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    tensors.emplace(name, describe(file, name, entry, data_begin));
  }
  check_coverage(file, tensors, data_begin);
  return tensors;
}

std::string make_header(std::span<const TensorSpec> tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}, {"writer", writer}};  // transformers refuses a file without its format
  std::int64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    const std::int64_t size = size_of(tensor.dtype);
    invariant(offset % size == 0, "tensors of a safetensors file are declared widest first");
    const std::int64_t end = offset + tensor.elements() * size;
    invariant(!header.contains(tensor.name), "tensors of a safetensors file have different names");
    header[tensor.name] = {{"dtype", tensor.dtype == DType::fp32 ? "F32" : "BF16"},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

}  // namespace trireme::huggingface

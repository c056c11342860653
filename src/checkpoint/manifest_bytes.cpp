// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest_bytes.hpp"

#include <cstring>
#include <type_traits>

#include "trireme/base/error.hpp"

namespace trireme::checkpoint {
namespace {

/// Appends values.
class Encoder {
 public:
  template <class Value>
  requires std::is_trivially_copyable_v<Value>
  void value(Value& value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(std::string& text) {
    count(text);
    bytes_ += text;
  }
  /// The size of a list, or of a text.
  template <class List>
  void count(List& list) {
    std::uint64_t size = list.size();
    value(size);
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Takes them from the front, in the same order.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : rest_(bytes) {}
  template <class Value>
  requires std::is_trivially_copyable_v<Value>
  void value(Value& value) {
    const std::string_view bytes = take(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
  }
  void text(std::string& text) {
    std::uint64_t size = 0;
    value(size);
    text = take(size);
  }
  template <class List>
  void count(List& list) {
    std::uint64_t size = 0;
    value(size);
    invariant(size <= rest_.size(), "a list of an encoded manifest is whole");
    list.resize(size);
  }
  [[nodiscard]] bool empty() const { return rest_.empty(); }

 private:
  std::string_view take(std::size_t size) {
    invariant(size <= rest_.size(), "an encoded manifest is whole");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest_;
};

void pass(auto& coder, std::int64_t& value) { coder.value(value); }
void pass(auto& coder, std::uint64_t& value) { coder.value(value); }
void pass(auto& coder, double& value) { coder.value(value); }
void pass(auto& coder, SkippedSamples& value) { coder.value(value); }
void pass(auto& coder, optimizer::UpdateRule& value) { coder.value(value); }
void pass(auto& coder, std::string& text) { coder.text(text); }
void pass(auto& coder, std::pair<std::string, std::string>& fact) {
  coder.text(fact.first);
  coder.text(fact.second);
}
void pass(auto& coder, SavedParameter& parameter);
void pass(auto& coder, SavedSlice& slice);
void pass(auto& coder, SavedDataset& dataset);
void pass(auto& coder, SavedFile& file);
void pass(auto& coder, Piece& piece);

template <class Item>
void list(auto& coder, std::vector<Item>& items) {
  coder.count(items);
  for (Item& item : items) pass(coder, item);
}

void pass(auto& coder, SavedParameter& parameter) {
  coder.text(parameter.name);
  list(coder, parameter.shape);
}

void pass(auto& coder, SavedSlice& slice) {
  coder.value(slice.parameter);
  coder.value(slice.hyperslab);
  coder.value(slice.offset);
  list(coder, slice.checksums);
}

void pass(auto& coder, SavedDataset& dataset) {
  coder.text(dataset.name);
  coder.value(dataset.quantity);
  coder.value(dataset.elements);
  coder.value(dataset.byte_offset);
  list(coder, dataset.slices);
}

void pass(auto& coder, SavedFile& file) {
  coder.text(file.path);
  coder.value(file.pipeline_rank);
  coder.value(file.dp_rank);
  coder.value(file.tensor_rank);
  coder.value(file.bytes);
  coder.value(file.rest);
  list(coder, file.datasets);
}

void pass(auto& coder, State& state) {
  for (std::int64_t* number :
       {&state.step, &state.updates, &state.skipped, &state.skipped_in_a_row, &state.tokens, &state.samples})
    coder.value(*number);
  coder.value(state.seed);
  coder.value(state.learning_rate);
  list(coder, state.taken);
  list(coder, state.skipped_samples);
  list(coder, state.spikes.losses);
  list(coder, state.spikes.grad_norms);
  coder.text(state.run_id);
  for (Metadata* metadata : {&state.data, &state.tuned_settings, &state.generation}) list(coder, *metadata);
  coder.text(state.run_file);
}

void pass(auto& coder, Manifest& manifest) {
  pass(coder, manifest.state);
  coder.value(manifest.mesh);
  coder.value(manifest.ranks_per_file);
  list(coder, manifest.model);
  list(coder, manifest.versions);
  list(coder, manifest.parameters);
  list(coder, manifest.rules);
  list(coder, manifest.files);
  list(coder, manifest.digests);
}

void pass(auto& coder, Piece& piece) {
  coder.value(piece.parameter);
  coder.value(piece.hyperslab);
}

void pass(auto& coder, Request& request) {
  list(coder, request.pieces);
  coder.value(request.moments);
  coder.value(request.digest_of);
}

void pass(auto& coder, Part& part) {
  list(coder, part.files);
  coder.value(part.digest);
  coder.value(part.digest_of_replica);
}

std::string encoded(auto& value) {
  Encoder encoder;
  pass(encoder, value);
  return encoder.take();
}

template <class Value>
Value decoded(std::string_view bytes) {
  Value value;
  Decoder decoder(bytes);
  pass(decoder, value);
  invariant(decoder.empty(), "an encoded manifest, or part of one, ends where it ends");
  return value;
}

}  // namespace

std::string encode(Manifest manifest) { return encoded(manifest); }
std::string encode(Request request) { return encoded(request); }
std::string encode(Part part) { return encoded(part); }

Manifest decode(std::string_view bytes) { return decoded<Manifest>(bytes); }
Request decode_request(std::string_view bytes) { return decoded<Request>(bytes); }
Part decode_part(std::string_view bytes) { return decoded<Part>(bytes); }

}  // namespace trireme::checkpoint

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace trireme::tokenizer::hf {

/// A hash table from 64 bits to a small value, by linear probing; never more than half full. The key ~0 is not allowed.
template <class Value>
class FlatMap {
 public:
  explicit FlatMap(std::size_t expected = 8) : slots_(std::bit_ceil(expected * 2 + 2)) {}

  /// The value at `key`, or nullptr.
  [[nodiscard]] const Value* find(std::uint64_t key) const {
    for (std::size_t at = place(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return &slots_[at].value;
      if (slots_[at].key == empty) return nullptr;
    }
  }

  /// The value at `key`: `value` when there was none.
  Value& insert(std::uint64_t key, Value value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    std::size_t at = place(key);
    while (slots_[at].key != empty && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    if (slots_[at].key == empty) {
      slots_[at] = {key, value};
      ++size_;
    }
    return slots_[at].value;
  }

  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  static constexpr std::uint64_t empty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = empty;
    Value value{};
  };

  [[nodiscard]] std::size_t place(std::uint64_t key) const {
    return ((key ^ key >> 29) * 0x9e3779b97f4a7c15u >> 20) & (slots_.size() - 1);
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    size_ = 0;
    for (const Slot& slot : old)
      if (slot.key != empty) insert(slot.key, slot.value);
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace trireme::tokenizer::hf

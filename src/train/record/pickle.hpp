// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::train {

/// Writes values in Python's pickle format (protocol 2, pickletools' opcodes): numbers, texts, lists and dictionaries
/// with text keys, as in memory snapshots.
class Pickle {
 public:
  Pickle() : bytes_("\x80\x02") {}

  void number(std::int64_t value);
  void text(std::string_view value);
  void flag(bool value) { bytes_ += value ? '\x88' : '\x89'; }

  /// Calls `fill`, which calls `element` for each. One opcode an element: the page cannot read very many at once.
  template <class Fill>
  void list(const Fill& fill) {
    bytes_ += ']';
    fill();
  }
  template <class Write>
  void element(const Write& write) {
    write();
    bytes_ += 'a';
  }
  /// Calls `fill`, which writes keys (`text`) and values in turn.
  template <class Fill>
  void dictionary(const Fill& fill) {
    bytes_ += "}(";
    fill();
    bytes_ += 'u';
  }
  void entry(std::string_view key, std::int64_t value) {
    text(key);
    number(value);
  }
  void entry(std::string_view key, std::string_view value) {
    text(key);
    text(value);
  }
  [[nodiscard]] std::string take() && { return std::move(bytes_ += '.'); }

 private:
  std::string bytes_;
};

}  // namespace trireme::train

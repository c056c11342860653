// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/needs.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace trireme::schedule {
namespace {

/// The resources of a schedule by number, in place of the resources themselves.
struct NumberedAccess {
  std::vector<int> reads, writes;
};

/// Of what a resource is and whose.
struct Hash {
  std::size_t operator()(const Resource& resource) const {
    const auto mixed = [](std::uint64_t hash, std::uint64_t with) {
      hash = (hash ^ with) * 0x9e3779b97f4a7c15U;
      return hash ^ (hash >> 32U);
    };
    std::uint64_t hash = resource.index() + 1;
    std::visit(
        [&](const auto& of) {
          using Of = std::remove_cvref_t<decltype(of)>;
          if constexpr (!std::is_empty_v<Of>) {
            static_assert(std::has_unique_object_representations_v<Of> && sizeof(Of) % sizeof(std::uint32_t) == 0);
            std::array<std::uint32_t, sizeof(Of) / sizeof(std::uint32_t)> words;
            std::memcpy(words.data(), &of, sizeof of);
            for (const std::uint32_t word : words) hash = mixed(hash, word);
          }
        },
        resource);
    return mixed(hash, 0);
  }
};

class Numbers {
 public:
  [[nodiscard]] std::vector<int> of(const std::vector<Resource>& resources) {
    std::vector<int> out;
    out.reserve(resources.size());
    for (const Resource& resource : resources)
      out.push_back(numbers_.try_emplace(resource, static_cast<int>(numbers_.size())).first->second);
    return out;
  }
  [[nodiscard]] std::size_t count() const { return numbers_.size(); }

 private:
  std::unordered_map<Resource, int, Hash> numbers_;
};

/// Two consecutive steps laid end to end: ops 0..n-1 are the step before, n..2n-1 the step whose needs are asked for.
class Walk {
 public:
  Walk(int ops, std::size_t resources)
      : ops_(ops), states_(resources), last_to_(2 * reasons * static_cast<std::size_t>(ops), -1) {}

  void need(int from, int to, Reason reason) {
    if (to < ops_ || from == to) return;
    // Ops are visited in order, so an edge is found again before any op behind `to` is visited.
    int& last_to = last_to_[static_cast<std::size_t>(from) * reasons + static_cast<std::size_t>(reason)];
    if (std::exchange(last_to, to) != to) found_.push_back({from % ops_, to - ops_, from < ops_ ? 1 : 0, reason});
  }

  void visit(int index, const NumberedAccess& access) {
    for (const int resource : access.reads) {
      const State& state = states_[static_cast<std::size_t>(resource)];
      if (state.writer) need(*state.writer, index, Reason::read_after_write);
    }
    for (const int resource : access.writes) {
      const State& state = states_[static_cast<std::size_t>(resource)];
      for (const int reader : state.readers) need(reader, index, Reason::write_after_read);
      if (state.writer) need(*state.writer, index, Reason::write_after_write);
    }
    for (const int resource : access.writes) {
      State& state = states_[static_cast<std::size_t>(resource)];
      state.writer = index;
      state.readers.clear();
    }
    for (const int resource : access.reads) {
      State& state = states_[static_cast<std::size_t>(resource)];
      if (state.writer != index) state.readers.push_back(index);
    }
  }

  std::vector<Need> take() { return std::move(found_); }

 private:
  struct State {
    std::optional<int> writer;
    std::vector<int> readers;
  };
  static constexpr std::size_t reasons = 4;
  int ops_;
  std::vector<State> states_;
  std::vector<int> last_to_;  ///< by op of the two steps and reason: the op that was last found to wait for it
  std::vector<Need> found_;
};

}  // namespace

std::vector<Need> needs(const Schedule& schedule, const model::Model& model) {
  const int n = static_cast<int>(schedule.ops.size());
  Numbers numbers;
  std::vector<NumberedAccess> access;
  access.reserve(schedule.ops.size());
  for (const Access& of : accesses(schedule, model))
    access.push_back({.reads = numbers.of(of.reads), .writes = numbers.of(of.writes)});
  Walk walk(n, numbers.count());
  std::array<std::optional<int>, lanes> last{};
  for (int i = 0; i < 2 * n; ++i) {
    auto& before = last[static_cast<std::size_t>(lane_of(schedule.ops[static_cast<std::size_t>(i % n)]))];
    if (before) walk.need(*before, i, Reason::lane_order);
    before = i;
    walk.visit(i, access[static_cast<std::size_t>(i % n)]);
  }
  return walk.take();
}

}  // namespace trireme::schedule

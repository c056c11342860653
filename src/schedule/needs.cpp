// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/needs.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace trireme::schedule {
namespace {

/// The resources that an op accesses by number, in place of the resources themselves.
struct NumberedAccess {
  std::span<const int> reads, writes;
};

/// Hash of a resource: kind and fields.
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

/// The accesses of all ops, their numbers side by side in one piece of memory.
class NumberedAccesses {
 public:
  explicit NumberedAccesses(const std::vector<Access>& accesses) {
    std::size_t all = 0;
    for (const Access& access : accesses) all += access.reads.size() + access.writes.size();
    numbers_.reserve(all);  // spans stay where they are
    accesses_.reserve(accesses.size());
    known_.reserve(accesses.size());
    for (const Access& access : accesses)
      accesses_.push_back({.reads = numbered(access.reads), .writes = numbered(access.writes)});
  }
  [[nodiscard]] const NumberedAccess& operator[](std::size_t op) const { return accesses_[op]; }
  [[nodiscard]] std::size_t resources() const { return known_.size(); }

 private:
  std::span<const int> numbered(const std::vector<Resource>& resources) {
    const std::size_t begin = numbers_.size();
    for (const Resource& resource : resources)
      numbers_.push_back(known_.try_emplace(resource, static_cast<int>(known_.size())).first->second);
    return std::span(numbers_).subspan(begin);
  }

  std::vector<int> numbers_;
  std::vector<NumberedAccess> accesses_;
  std::unordered_map<Resource, int, Hash> known_;
};

/// Two consecutive steps in one sequence: ops 0..n-1 are the previous step, n..2n-1 the step whose needs are computed.
class Walk {
 public:
  Walk(int ops, std::size_t resources)
      : ops_(ops), states_(resources), last_to_(2 * reasons * static_cast<std::size_t>(ops), -1) {}

  void need(int from, int to, Reason reason) {
    if (to < ops_ || from == to) return;
    // Ops are visited in order, so an edge is found again before any op after `to` is visited.
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
  const NumberedAccesses access(accesses(schedule, model));
  Walk walk(n, access.resources());
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

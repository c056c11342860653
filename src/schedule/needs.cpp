// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/needs.hpp"

#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace trireme::schedule {
namespace {

/// Two consecutive steps laid end to end: ops 0..n-1 are the step before, n..2n-1 the step whose needs are asked for.
class Walk {
 public:
  explicit Walk(int ops) : ops_(ops) {}

  void need(int from, int to, Reason reason) {
    if (to < ops_ || from == to) return;
    const int distance = from < ops_ ? 1 : 0;
    const auto key = std::tuple{from % ops_, to - ops_, distance, reason};
    if (seen_.insert(key).second) found_.push_back({from % ops_, to - ops_, distance, reason});
  }

  void visit(int index, const Access& access) {
    for (const Resource& resource : access.reads) {
      const State& state = states_[resource];
      if (state.writer) need(*state.writer, index, Reason::read_after_write);
    }
    for (const Resource& resource : access.writes) {
      State& state = states_[resource];
      for (const int reader : state.readers) need(reader, index, Reason::write_after_read);
      if (state.writer) need(*state.writer, index, Reason::write_after_write);
    }
    for (const Resource& resource : access.writes) states_[resource] = {index, {}};
    for (const Resource& resource : access.reads) {
      State& state = states_[resource];
      if (state.writer != index) state.readers.push_back(index);
    }
  }

  std::vector<Need> take() { return std::move(found_); }

 private:
  struct State {
    std::optional<int> writer;
    std::vector<int> readers;
  };
  int ops_;
  std::map<Resource, State> states_;
  std::set<std::tuple<int, int, int, Reason>> seen_;
  std::vector<Need> found_;
};

}  // namespace

std::vector<Need> needs(const Schedule& schedule, const model::Model& model) {
  const int n = static_cast<int>(schedule.ops.size());
  const std::vector<Access> access = accesses(schedule, model);
  Walk walk(n);
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

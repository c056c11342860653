// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {
namespace {

/// For each op, the ops of two consecutive steps that must have ended before it, directly or transitively, as bit rows.
class Before {
 public:
  Before(int ops, std::span<const Need> edges)
      : count_(2 * ops),
        words_((count_ + 63) / 64),
        bits_(static_cast<std::size_t>(count_) * static_cast<std::size_t>(words_)) {
    std::vector<std::vector<int>> into(static_cast<std::size_t>(count_));
    for (const Need& need : edges)
      for (int step = need.distance; step < 2; ++step) {
        const int to = step * ops + need.to;
        into[static_cast<std::size_t>(to)].push_back((step - need.distance) * ops + need.from);
      }
    for (int i = 0; i < count_; ++i)
      for (const int from : into[static_cast<std::size_t>(i)]) {
        if (from >= i) continue;  // an edge against the order of the list orders nothing
        for (int w = 0; w < words_; ++w) word(i, w) |= word(from, w);
        word(i, from / 64) |= 1ULL << (from % 64);
      }
  }
  [[nodiscard]] bool ordered(int first, int second) { return ((word(second, first / 64) >> (first % 64)) & 1U) != 0; }

 private:
  std::uint64_t& word(int row, int w) {
    return bits_[static_cast<std::size_t>(row) * static_cast<std::size_t>(words_) + static_cast<std::size_t>(w)];
  }
  int count_;
  int words_;
  std::vector<std::uint64_t> bits_;
};

struct Touch {
  int op;
  bool write;
};

}  // namespace

std::vector<std::string> verify_needs(const Schedule& schedule, const model::Model& model,
                                      std::span<const Need> edges) {
  const int n = static_cast<int>(schedule.ops.size());
  const auto op = [&](int i) -> const Op& { return schedule.ops[static_cast<std::size_t>(i % n)]; };
  const auto say = [&](int i) {
    return fmt::format("op {} `{}`{}", i % n, print(op(i), model), i >= n ? " of the next step" : "");
  };
  Before before(n, edges);
  std::vector<std::string> wrong;

  std::map<Resource, std::vector<Touch>> touches;
  const std::vector<Access> access = accesses(schedule, model);
  for (int i = 0; i < 2 * n; ++i) {
    for (const Resource& r : access[static_cast<std::size_t>(i % n)].reads) touches[r].push_back({i, false});
    for (const Resource& r : access[static_cast<std::size_t>(i % n)].writes) touches[r].push_back({i, true});
  }
  for (const auto& [resource, list] : touches)
    for (std::size_t second = 1; second < list.size(); ++second)
      for (std::size_t first = 0; first < second; ++first) {
        const Touch& a = list[first];
        const Touch& b = list[second];
        if (a.op == b.op || (!a.write && !b.write) || before.ordered(a.op, b.op)) continue;
        wrong.push_back(
            fmt::format("{} may start before {} has ended with {}", say(b.op), say(a.op), to_text(resource, model)));
      }

  std::array<int, lanes> last;
  last.fill(-1);
  for (int i = 0; i < 2 * n; ++i) {
    int& previous = last[static_cast<std::size_t>(lane_of(op(i)))];
    if (previous >= 0 && !before.ordered(previous, i))
      wrong.push_back(fmt::format("{} may overtake {} on its lane", say(i), say(previous)));
    previous = i;
  }
  return wrong;
}

}  // namespace trireme::schedule

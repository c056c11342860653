// SPDX-License-Identifier: Apache-2.0
#include "planner/time/meetings.hpp"

#include <map>
#include <tuple>

#include "trireme/base/error.hpp"

namespace trireme::planner {
namespace {

/// Ops that begin together; the last ones also wait for the first one's end.
struct Meeting {
  std::vector<int> begin_together;
  bool ends_with_first = false;
};

template <class Transfer>
std::tuple<int, int, int> transfer_key(const Transfer& transfer) {
  return {transfer.edge.value, transfer.microbatch.value, static_cast<int>(transfer.phase)};
}

/// Finds the ops of different ranks that form one collective.
class Meetings {
 public:
  explicit Meetings(std::span<const RankStep> ranks) {
    int at = 0;
    for (const RankStep& rank : ranks) {
      int norms = 0, sums = 0;
      for (const schedule::Op& op : rank.schedule.ops) {
        if (const auto* send = std::get_if<schedule::Send>(&op)) sends_[transfer_key(*send)] = at;
        if (const auto* receive = std::get_if<schedule::Receive>(&op)) receives_[transfer_key(*receive)] = at;
        if (std::holds_alternative<schedule::ClipNorm>(op)) norms_[norms++].begin_together.push_back(at);
        if (const auto* sum = std::get_if<schedule::AllReduceReplicated>(&op);
            sum != nullptr && sum->over == schedule::Copies::pipeline)
          sums_[sums++].begin_together.push_back(at);
        ++at;
      }
    }
  }

  [[nodiscard]] std::vector<Meeting> all() const {
    std::vector<Meeting> out;
    for (const auto& [key, send] : sends_) {
      const auto receive = receives_.find(key);
      invariant(receive != receives_.end(), "every send of a pipeline has its receive");
      out.push_back({{send, receive->second}, true});
    }
    for (const auto& [number, meeting] : norms_) out.push_back(meeting);
    for (const auto& [number, meeting] : sums_) out.push_back(meeting);
    return out;
  }

 private:
  std::map<std::tuple<int, int, int>, int> sends_, receives_;
  std::map<int, Meeting> norms_, sums_;  ///< by their number of predecessors of the kind in a rank's list
};

}  // namespace

std::vector<schedule::Need> needs_between(std::span<const RankStep> ranks, std::span<const schedule::Need> needs) {
  std::vector<schedule::Need> out;
  if (ranks.size() < 2) return out;
  std::map<int, std::vector<schedule::Need>> of;  // needs of the ops that meet
  const std::vector<Meeting> meetings = Meetings(ranks).all();
  for (const Meeting& meeting : meetings)
    for (const int op : meeting.begin_together) of[op];
  for (const schedule::Need& need : needs)
    if (const auto found = of.find(need.to); found != of.end()) found->second.push_back(need);
  for (const Meeting& meeting : meetings) {
    for (const int op : meeting.begin_together)
      for (const int other : meeting.begin_together) {
        if (op == other || (meeting.ends_with_first && other != meeting.begin_together.front())) continue;
        for (schedule::Need need : of.at(op)) {
          need.to = other;
          out.push_back(need);
        }
      }
    if (meeting.ends_with_first)
      out.push_back({.from = meeting.begin_together.front(), .to = meeting.begin_together.back()});
  }
  return out;
}

}  // namespace trireme::planner

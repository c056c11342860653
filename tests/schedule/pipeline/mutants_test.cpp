// SPDX-License-Identifier: Apache-2.0
// No mutant of the lists of pipeline ranks is missed: it is refused, or computes the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "complaints.hpp"
#include "pipelines.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/config/names.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/pipeline/verify.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {
namespace {

using testing::Complaint;
using testing::complaints;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::Lists;
using testing::lists_of;
using testing::pipeline;
using testing::pipelines;
using ::testing::SizeIs;

/// Whether an op passes something between ranks, or all ranks call it together.
bool passes(const Op& op) {
  const auto* sum = std::get_if<AllReduceReplicated>(&op);
  return std::holds_alternative<Put>(op) || std::holds_alternative<Send>(op) || std::holds_alternative<Receive>(op) ||
         std::holds_alternative<Take>(op) || std::holds_alternative<ClipNorm>(op) ||
         (sum != nullptr && sum->over == Copies::pipeline);
}

std::vector<std::string> wrong_with(const Lists& of, std::size_t rank, const Schedule& mutant) {
  std::vector<Schedule> lists = of.lists;
  lists[rank] = mutant;
  return verify_pipeline(lists, of.parts, of.pipeline);
}

/// Executes the lists with values: every op computes a number from its inputs, and transfers carry it over.
/// Blocking and unbuffered, so that a list that hangs does not end; nothing then.
class Runner {
 public:
  explicit Runner(const Lists& of, const std::vector<Schedule>& lists) : of_(of), lists_(lists) {
    for (std::size_t r = 0; r < lists.size(); ++r) access_.push_back(accesses(lists[r], of.parts[r].model));
    next_.resize(lists.size());
    values_.resize(lists.size());
  }
  std::optional<std::vector<std::map<Resource, std::uint64_t>>> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < lists_.size(); ++rank)
        while (step(rank)) moved = true;
    }
    for (std::size_t rank = 0; rank < lists_.size(); ++rank)
      if (next_[rank] < lists_[rank].ops.size()) return std::nullopt;
    std::vector<std::map<Resource, std::uint64_t>> out = values_;
    for (auto& values : out)
      std::erase_if(values, [](const auto& of) { return !std::holds_alternative<resource::MasterShard>(of.first); });
    return out;
  }

 private:
  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    return (a ^ (b + 0x9e3779b97f4a7c15U + (a << 6))) * 0x100000001b3U;
  }
  std::uint64_t& value(std::size_t rank, const Resource& of) { return values_[rank].try_emplace(of, 1).first->second; }
  bool step(std::size_t rank) {
    if (next_[rank] == lists_[rank].ops.size()) return false;
    const std::size_t i = next_[rank];
    const Op& op = lists_[rank].ops[i];
    if (std::holds_alternative<Receive>(op)) return false;  // its sender moves both
    if (const auto* send = std::get_if<Send>(&op)) {
      const auto peer = static_cast<std::size_t>(send->peer);
      if (peer >= lists_.size() || next_[peer] == lists_[peer].ops.size()) return false;
      const auto* receive = std::get_if<Receive>(&lists_[peer].ops[next_[peer]]);
      if (receive == nullptr || receive->peer != static_cast<int>(rank)) return false;
      value(peer, resource::ReceiveSlot{receive->slot}) = value(rank, resource::SendSlot{send->slot});
      ++next_[peer];
      ++next_[rank];
      return true;
    }
    const bool backward = std::holds_alternative<Backward>(op), reduces = std::holds_alternative<ReduceScatter>(op);
    const auto is_sum = [&](const Resource& r) {
      return (backward && std::holds_alternative<resource::GradientSlot>(r)) ||
             (reduces && std::holds_alternative<resource::GradientShard>(r));
    };
    const bool computes = std::holds_alternative<Forward>(op) || backward || std::holds_alternative<Recompute>(op);
    std::uint64_t result = computes ? fnv1a(print(op, of_.parts[rank].model)) : op.index();
    for (const Resource& read : access_[rank][i].reads)
      if (!is_sum(read)) result = mix(result, value(rank, read));
    // A copy carries what it copies.
    if (const auto* put = std::get_if<Put>(&op)) result = value(rank, resource::Hidden{put->microbatch});
    if (const auto* take = std::get_if<Take>(&op)) result = value(rank, resource::ReceiveSlot{take->slot});
    for (const Resource& written : access_[rank][i].writes) {
      std::uint64_t& to = value(rank, written);
      to = is_sum(written) ? to + result : result;
    }
    if (reduces)
      for (const Resource& read : access_[rank][i].reads)
        if (std::holds_alternative<resource::GradientSlot>(read)) value(rank, read) = 0;
    ++next_[rank];
    return true;
  }

  const Lists& of_;
  const std::vector<Schedule>& lists_;
  std::vector<std::vector<Access>> access_;
  std::vector<std::size_t> next_;
  std::vector<std::map<Resource, std::uint64_t>> values_;
};

/// Every mutant is refused, or it ends and computes the same.
TEST(PipelineMutants, AreRefusedOrComputeTheSame) {
  int refused = 0, same = 0;
  std::set<const Complaint*> unsaid;
  for (const Complaint& complaint : complaints) unsaid.insert(&complaint);
  for (const Pipeline& p : pipelines({2, 3}, {3, 4})) {
    if (p.chunks > 2) continue;
    const Lists sound = lists_of(p, {}, /*tied=*/p.ranks == 2);
    const auto expected = Runner(sound, sound.lists).run();
    ASSERT_TRUE(expected) << config::to_text(p.kind);
    const auto check = [&](std::size_t rank, const Schedule& mutant, bool must_be_refused, const std::string& what) {
      const std::vector<std::string> wrong = wrong_with(sound, rank, mutant);
      const bool unsound = !wrong.empty();
      std::erase_if(unsaid, [&](const Complaint* of) {
        return std::ranges::any_of(wrong, [&](const std::string& text) {
          return text.find(of->of) != std::string::npos && text.find(of->text) != std::string::npos;
        });
      });
      EXPECT_TRUE(unsound || !must_be_refused) << what;
      if (unsound || (!must_be_refused && !verify(mutant, sound.parts[rank].model, 1).empty())) {
        ++refused;
        return;
      }
      ++same;
      std::vector<Schedule> lists = sound.lists;
      lists[rank] = mutant;
      EXPECT_EQ(Runner(sound, lists).run(), expected) << what;
    };
    for (std::size_t rank = 0; rank < sound.lists.size(); ++rank) {
      const Schedule& list = sound.lists[rank];
      for (std::size_t i = 0; i < list.ops.size() && !HasFailure(); ++i) {
        if (!passes(list.ops[i])) continue;
        const std::string what = std::string(config::to_text(p.kind)) + ", rank " + std::to_string(rank) + ", op " +
                                 std::to_string(i) + " `" + print(list.ops[i], sound.parts[rank].model) + "`";
        Schedule dropped = list;
        dropped.ops.erase(dropped.ops.begin() + static_cast<std::ptrdiff_t>(i));
        check(rank, dropped, true, what + " dropped");
        Schedule twice = list;
        twice.ops.insert(twice.ops.begin() + static_cast<std::ptrdiff_t>(i), list.ops[i]);
        check(rank, twice, true, what + " twice");
        for (std::size_t j = i + 1; j < std::min(i + 8, list.ops.size()); ++j) {
          Schedule swapped = list;
          std::swap(swapped.ops[i], swapped.ops[j]);
          check(rank, swapped, false, what + " swapped with op " + std::to_string(j));
        }
        const auto changed = [&](auto change, const char* how) {
          Schedule mutant = list;
          std::visit(
              [&](auto& verb) {
                if constexpr (requires { change(verb); }) {
                  change(verb);
                  check(rank, mutant, true, what + how);
                }
              },
              mutant.ops[i]);
        };
        changed(
            [](auto& verb) requires requires { verb.peer; } { ++verb.peer; }, " to another peer");
        changed(
            [](auto& verb) requires requires { verb.peer; } { verb.peer = -1; }, " to no peer");
        changed(
            [](auto& verb) requires requires { verb.edge; } { verb.slot.index += 1; }, " in another slot");
        changed(
            [](auto& verb) requires requires { verb.edge; } { verb.slot.index ^= 1; }, " in the other slot");
        changed(
            [](auto& verb) requires requires { verb.edge; } { ++verb.edge.value; }, " over another edge");
        changed(
            [](auto& verb) requires requires { verb.edge; } { verb.microbatch.value ^= 1; }, " of another microbatch");
        changed(
            [](auto& verb) requires requires { verb.edge; } {
              verb.phase = verb.phase == Phase::forward ? Phase::backward : Phase::forward;
            },
            " in the other direction");
      }
    }
  }
  EXPECT_GT(refused, 3000);
  for (const Complaint* of : unsaid) ADD_FAILURE() << "no mutant is refused with " << of->of << " ... " << of->text;
  EXPECT_GT(same, 200) << "a put may stand behind another rank's update, a receive before a forward";
}

/// Parts of a split backward: dropped, done twice, out of order, of another part, and reductions before the last
/// weights.
TEST(PipelineMutants, OfASplitBackwardAreRefused) {
  int refused = 0, early = 0, repeated = 0;
  for (const PipelineKind kind : {PipelineKind::zb_h1, PipelineKind::zbv, PipelineKind::dualpipev}) {
    const Lists sound = lists_of(pipeline(kind, 2, 4));
    for (std::size_t rank = 0; rank < sound.lists.size(); ++rank) {
      const Schedule& list = sound.lists[rank];
      const model::Model& model = sound.parts[rank].model;
      const auto expect_refused = [&](const Schedule& mutant, std::size_t op, const std::string& what) {
        ++refused;
        const std::vector<std::string> wrong = verify(mutant, model, 1);
        EXPECT_FALSE(wrong.empty()) << config::to_text(kind) << ", rank " << rank << ", op " << op << " `"
                                    << print(list.ops[op], model) << "` " << what;
        for (const std::string& text : wrong) {
          early += text.find("has no backward_input before it") != std::string::npos ? 1 : 0;
          repeated += text.find("comes after its backward_input") != std::string::npos ? 1 : 0;
        }
      };
      const auto moved = [&](std::size_t from, std::size_t to) {  // to before `to`
        Schedule mutant = list;
        const auto begin = mutant.ops.begin();
        const auto at = [&](std::size_t i) { return begin + static_cast<std::ptrdiff_t>(i); };
        if (from > to)
          std::rotate(at(to), at(from), at(from + 1));
        else
          std::rotate(at(from), at(from + 1), at(to));
        return mutant;
      };
      for (std::size_t i = 0; i < list.ops.size() && !HasFailure(); ++i) {
        const auto* const part = std::get_if<Backward>(&list.ops[i]);
        if (part == nullptr || part->part == BackwardPart::whole) continue;
        Schedule dropped = list, twice = list, other = list, whole = list;
        dropped.ops.erase(dropped.ops.begin() + static_cast<std::ptrdiff_t>(i));
        expect_refused(dropped, i, "dropped");
        twice.ops.insert(twice.ops.begin() + static_cast<std::ptrdiff_t>(i), list.ops[i]);
        expect_refused(twice, i, "twice");
        const bool input = part->part == BackwardPart::input;
        std::get<Backward>(other.ops[i]).part = input ? BackwardPart::weight : BackwardPart::input;
        expect_refused(other, i, "as the other part");
        std::get<Backward>(whole.ops[i]).part = BackwardPart::whole;
        expect_refused(whole, i, "as a whole backward");
        if (input) continue;
        for (std::size_t j = 0; j < i; ++j)
          if (const auto* first = std::get_if<Backward>(&list.ops[j]);
              first != nullptr && first->part == BackwardPart::input && first->block == part->block &&
              first->microbatch == part->microbatch)
            expect_refused(moved(i, j), i, "before its input");
        for (std::size_t j = i + 1; j < list.ops.size(); ++j)
          if (const auto* reduce = std::get_if<ReduceScatter>(&list.ops[j]);
              reduce != nullptr && reduce->slot == part->gradients.front().slot) {
            expect_refused(moved(i, j + 1), i, "behind its reduction");
            break;
          }
      }
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(early, 0);
  EXPECT_GT(repeated, 0);
}

TEST(PipelineMutants, ThatHangNameEveryRankItsOpAndWhomItWaitsFor) {
  const Lists sound = lists_of(pipeline(PipelineKind::one_f_one_b, 2, 2));
  std::vector<Schedule> lists = sound.lists;
  // Rank 1 requires the second stream before it sends the first gradient; rank 0 waits for that.
  const auto text = [&](std::size_t rank) { return print(lists[rank], sound.parts[rank].model); };
  std::string first = text(0), before = "send e0 m1";
  const auto line = [&](const std::string& of) {
    return first.substr(first.find(of), first.find('\n', first.find(of)) - first.find(of) + 1);
  };
  const std::string send = line(before);
  first.erase(first.find(send), send.size());
  const std::string take = line("take e0 m0 gradient");
  first.insert(first.find(take), send);
  lists[0] = parse(first, sound.parts[0].model);
  const auto wrong = verify_pipeline(lists, sound.parts, sound.pipeline);
  EXPECT_THAT(wrong, SizeIs(2));
  EXPECT_THAT(wrong, Contains(HasSubstr("pipeline rank 0 waits forever at op")));
  EXPECT_THAT(
      wrong,
      Contains(HasSubstr("`receive e0 m0 gradient <- p1 -> in0.0` of step 0 for pipeline rank 1, which is at op")));
  EXPECT_THAT(wrong, Contains(HasSubstr("`receive e0 m1 <- p0 -> in0.0`")));
}

TEST(PipelineMutants, WithAnotherNumberOfMicrobatchesOrListsAreRefused) {
  const Lists built = lists_of(pipeline(PipelineKind::one_f_one_b, 2, 4));
  const Lists other = lists_of(pipeline(PipelineKind::one_f_one_b, 2, 3));
  EXPECT_THAT(verify_pipeline(std::vector{built.lists[0], other.lists[1]}, built.parts, built.pipeline),
              Contains(HasSubstr("pipeline rank 1 has 3 microbatches, pipeline rank 0 has 4")));
  EXPECT_THAT(verify_pipeline(std::vector{built.lists[0]}, built.parts, built.pipeline),
              Contains(HasSubstr("1 lists for 2 pipeline ranks")));
}

}  // namespace
}  // namespace trireme::schedule

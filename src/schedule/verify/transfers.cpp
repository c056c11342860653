// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {
namespace {

/// A transfer over an edge.
using Passed = std::tuple<Edge, Microbatch, Phase>;

/// Follows the slots between pipeline ranks, and the transfers over each edge.
class Transfers {
 public:
  Transfers(const Schedule& schedule, const model::Model& model, Complete complete)
      : schedule_(schedule), model_(model), complete_(complete) {}

  std::vector<std::string> run() {
    for (index_ = 0; index_ < schedule_.ops.size(); ++index_) std::visit(*this, schedule_.ops[index_]);
    for (const auto* slots : {&out_, &in_})
      for (const auto& [slot, what] : *slots)
        wrong_.push_back(fmt::format("end of step: {} was {} and never {}", text(what),
                                     slots == &out_ ? "put" : "received", slots == &out_ ? "sent" : "taken"));
    return std::move(wrong_);
  }

  void operator()(const Put& op) { fill(out_, put_, op, "puts"); }
  void operator()(const Send& op) { empty(out_, op, "sends"); }
  void operator()(const Receive& op) { fill(in_, received_, op, "receives"); }
  void operator()(const Take& op) { empty(in_, op, "takes"); }
  template <class Other>
  void operator()(const Other&) {}

 private:
  using Slots = std::map<Slot, Passed>;

  template <class Verb>
  [[nodiscard]] static Passed passed(const Verb& op) {
    return {op.edge, op.microbatch, op.phase};
  }
  [[nodiscard]] static std::string text(const Passed& what) {
    const auto& [edge, m, phase] = what;
    return fmt::format("e{} m{}{}", edge.value, m.value, phase == Phase::backward ? " gradient" : "");
  }
  /// Before slots are assigned every transfer has a separate one.
  template <class Verb>
  [[nodiscard]] Slot slot(const Verb& op) const {
    if (complete_.slots) return op.slot;
    return {op.edge.value * 2 + static_cast<int>(op.phase), op.microbatch.value};
  }
  template <class Verb>
  void fill(Slots& slots, std::set<Passed>& before, const Verb& op, const char* does) {
    if (op.phase != Phase::forward && op.phase != Phase::backward) complain("has no direction");
    if (op.microbatch.value < 0 || op.microbatch.value >= schedule_.microbatches)
      complain(fmt::format("names m{} of a step of {} microbatches", op.microbatch.value, schedule_.microbatches));
    if (!before.insert(passed(op)).second) complain(fmt::format("{} it a second time", does));
    const auto [held, fresh] = slots.emplace(slot(op), passed(op));
    if (!fresh) complain(fmt::format("overwrites {} in its slot", text(held->second)));
    held->second = passed(op);
  }
  template <class Verb>
  void empty(Slots& slots, const Verb& op, const char* does) {
    const auto held = slots.find(slot(op));
    if (held == slots.end()) return complain(fmt::format("{} from a slot that holds nothing", does));
    if (held->second != passed(op)) complain(fmt::format("{} from a slot that holds {}", does, text(held->second)));
    slots.erase(held);
  }
  void complain(const std::string& what) {
    wrong_.push_back(fmt::format("op {} `{}`: {}", index_, print(schedule_.ops[index_], model_), what));
  }

  const Schedule& schedule_;
  const model::Model& model_;
  Complete complete_;
  std::size_t index_ = 0;
  std::vector<std::string> wrong_;
  Slots out_, in_;
  std::set<Passed> put_, received_;
};

}  // namespace

std::vector<std::string> verify_transfers(const Schedule& schedule, const model::Model& model, Complete complete) {
  return Transfers(schedule, model, complete).run();
}

}  // namespace trireme::schedule

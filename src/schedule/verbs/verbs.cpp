// SPDX-License-Identifier: Apache-2.0
// All verbs' descriptions as functions of any op. A verb that has none does not compile here.
#include "schedule/verbs.hpp"

#include <concepts>
#include <map>
#include <type_traits>
#include <utility>

#include "schedule/verbs/compute.hpp"
#include "schedule/verbs/exchange.hpp"
#include "schedule/verbs/gradients.hpp"
#include "schedule/verbs/offload.hpp"
#include "schedule/verbs/optimizer.hpp"
#include "schedule/verbs/parameters.hpp"
#include "schedule/verbs/pipeline.hpp"

namespace trireme::schedule {
namespace {

template <class Verb>
concept described = requires(const Verb& op, Effects& on, const model::Model& model, Line& line) {
  { Description<Verb>::names[0] } -> std::convertible_to<std::string_view>;
  { Description<Verb>::lane(op) } -> std::same_as<Lane>;
  { Description<Verb>::effects(op, on) } -> std::same_as<void>;
  { Description<Verb>::print(op, model) } -> std::same_as<std::string>;
  { Description<Verb>::parse(line, std::string_view{}) } -> std::same_as<Op>;
};

template <class Ops>
struct AllVerbs;
template <class... Verbs>
struct AllVerbs<std::variant<Verbs...>> {
  static_assert((described<Verbs> && ...), "every verb of op.hpp has a Description in schedule/verbs/");

  using Parse = Op (*)(Line&, std::string_view);
  static std::map<std::string_view, Parse> parsers() {
    std::map<std::string_view, Parse> found;
    const auto add = [&]<class Verb>(std::type_identity<Verb>) {
      for (const std::string_view name : Description<Verb>::names) found.emplace(name, &Description<Verb>::parse);
    };
    (add(std::type_identity<Verbs>{}), ...);
    return found;
  }
};

template struct AllVerbs<Op>;

template <class Verb>
std::string_view name_of(const Verb& op) {
  if constexpr (requires { Description<Verb>::name(op); })
    return Description<Verb>::name(op);
  else if constexpr (requires { op.part; })
    return Description<Verb>::names[static_cast<std::size_t>(op.part)];
  else
    return Description<Verb>::names.front();
}

}  // namespace

Lane lane_of(const Op& op) {
  return std::visit([]<class Verb>(const Verb& verb) { return Description<Verb>::lane(verb); }, op);
}

std::string_view copy_name(const Op& op) {
  return std::visit(
      []<class Verb>(const Verb&) -> std::string_view {
        if constexpr (requires { Description<Verb>::copy; })
          return Description<Verb>::copy;
        else
          return "";
      },
      op);
}

std::vector<Access> accesses(const Schedule& schedule, const model::Model& model) {
  std::vector<Access> out;
  out.reserve(schedule.ops.size());
  Residence residence;
  for (const Op& op : schedule.ops) {
    Effects on(model, residence, op);
    std::visit([&]<class Verb>(const Verb& verb) { Description<Verb>::effects(verb, on); }, op);
    out.push_back(std::move(on.out));
  }
  return out;
}

std::string print(const Op& op, const model::Model& model) {
  return std::visit(
      [&]<class Verb>(const Verb& verb) {
        const std::string rest = Description<Verb>::print(verb, model);
        return std::string(name_of(verb)) + (rest.empty() ? "" : " ") + rest;
      },
      op);
}

Op parse_op(std::string_view name, Line& line) {
  static const auto parsers = AllVerbs<Op>::parsers();
  if (const auto found = parsers.find(name); found != parsers.end()) return found->second(line, name);
  std::string known = "one of step";
  for (const auto& [other, parse] : parsers) known.append(", ").append(other);
  line.expected(known);
}

}  // namespace trireme::schedule

// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <map>
#include <string>

#include "schedule/line.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {
namespace {

Op parse_backward(Line& line, BackwardPart part) {
  const auto [block, stage] = line.block();
  Backward op{.block = block, .stage = stage, .microbatch = line.microbatch(), .gradients = {}, .part = part};
  if (!line.take_if("->")) return op;
  do {
    GradientTarget target{.block = line.param_block(), .slot = line.slot("grad"), .add = false};
    if (!line.comma()) target.add = line.add();
    op.gradients.push_back(target);
  } while (line.comma());
  return op;
}

/// A verb of one stage.
template <class Verb>
Op parse_stage_verb(Line& line) {
  const auto [block, stage] = line.block();
  if (!stage) line.expected("a stage of a block, such as b0.mlp");
  Verb op{.block = block, .stage = *stage, .microbatch = line.microbatch()};
  if constexpr (requires { op.pass; }) {
    if (line.take_if("backward")) op.pass = Pass::backward;
    if (line.take_if("again")) op.pass = Pass::again;
    if (line.take_if("recompute")) op.pass = Pass::recompute;
  }
  return op;
}

Op parse_forward(Line& line) {
  const auto [block, stage] = line.block();
  Forward op{.block = block, .stage = stage, .microbatch = line.microbatch()};
  if (!line.take_if("keep")) return op;
  if (line.take_if("input"))
    op.keep = model::Keep::input;
  else if (line.take_if("all"))
    op.keep = model::Keep::all;
  else
    line.expected("input or all");
  return op;
}

Op parse_recompute(Line& line) {
  const auto [block, stage] = line.block();
  return Recompute{block, stage, line.microbatch()};
}

Op parse_unshard(Line& line) {
  const ParamBlock block = line.param_block();
  const std::optional<int> from = line.take_if("from") ? std::optional(line.count()) : std::nullopt;
  const std::optional<Slot> staged = line.slot_if("<-", "up");
  line.take_word("->");
  return Unshard{block, line.slot("ring"), from, staged};
}

Op parse_reduce_scatter(Line& line) {
  const ParamBlock block = line.param_block();
  line.take_word("<-");
  const Slot slot = line.slot("grad");
  const bool add = line.take_if("add");
  const bool partial = !add && line.take_if("partial");
  return ReduceScatter{block, slot, add, partial, line.slot_if("->", "down")};
}

Op parse_reshard(Line& line) {
  const ParamBlock block = line.param_block();
  return Reshard{block, line.take_if("to") ? std::optional(line.count()) : std::nullopt};
}

Op parse_all_reduce(Line& line) {
  const ParamBlock block = line.param_block();
  const bool partial = line.take_if("partial");
  return AllReduce{block, partial, line.slot_if("->", "down")};
}

Op parse_update(Line& line) {
  const ParamBlock block = line.param_block();
  if (!line.take_if("on")) return Update{block};
  line.take_word("host");
  return Update{block, true};
}

Op parse_upload(Line& line) {
  const ParamBlock block = line.param_block();
  return Upload{block, line.slot_if("->", "up")};
}

Op parse_offload_gradient(Line& line) {
  const ParamBlock block = line.param_block();
  line.take_word("<-");
  const Slot slot = line.slot("down");
  return OffloadGradient{block, slot, line.take_if("add")};
}

Op parse_offload(Line& line) {
  const Block block = line.block().first;
  const Microbatch microbatch = line.microbatch();
  line.take_word("min");
  return OffloadActivations{block, microbatch, {line.bytes()}};
}

Op parse_drop(Line& line) {
  const Block block = line.block().first;
  return DropActivations{block, line.microbatch()};
}

Op parse_reload(Line& line) {
  const Block block = line.block().first;
  const Microbatch microbatch = line.microbatch();
  line.take_word("after");
  return ReloadActivations{block, microbatch, line.block().first};
}

const std::map<std::string_view, std::function<Op(Line&)>>& verbs() {
  static const std::map<std::string_view, std::function<Op(Line&)>> table = {
      {"unshard", parse_unshard},
      {"reshard", parse_reshard},
      {"forward", parse_forward},
      {"recompute", parse_recompute},
      {"backward", [](Line& line) { return parse_backward(line, BackwardPart::whole); }},
      {"backward_input", [](Line& line) { return parse_backward(line, BackwardPart::input); }},
      {"backward_weight", [](Line& line) { return parse_backward(line, BackwardPart::weight); }},
      {"gather_sequence", parse_stage_verb<GatherSequence>},
      {"scatter_sequence", parse_stage_verb<ScatterSequence>},
      {"all_reduce_activation", parse_stage_verb<AllReduceActivation>},
      {"gather_vocabulary", parse_stage_verb<GatherVocabulary>},
      {"forward_again", parse_stage_verb<ForwardAgain>},
      {"sum_copies", [](Line& line) -> Op { return SumCopies{line.param_block()}; }},
      {"reduce_scatter", parse_reduce_scatter},
      {"all_reduce", parse_all_reduce},
      {"clip_norm", [](Line&) -> Op { return ClipNorm{}; }},
      {"update", parse_update},
      {"upload", parse_upload},
      {"offload_gradient", parse_offload_gradient},
      {"sum_squares", [](Line& line) -> Op { return SumSquares{line.param_block()}; }},
      {"offload", parse_offload},
      {"drop", parse_drop},
      {"reload", parse_reload},
  };
  return table;
}

}  // namespace

Schedule parse(std::string_view text, const model::Model& model) {
  Schedule out;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    Line line(content, ++number, model);
    if (line.done() || content.starts_with('#')) continue;
    const std::string_view verb = line.take("a verb");
    if (verb == "step") {
      std::string_view count = line.take("microbatches=N");
      if (!count.starts_with("microbatches=")) line.expected("microbatches=N");
      count.remove_prefix(std::string_view("microbatches=").size());
      out.microbatches = line.number(count, "microbatches=N");
    } else if (const auto found = verbs().find(verb); found != verbs().end()) {
      out.ops.push_back(found->second(line));
    } else {
      std::string known = "one of step";
      for (const auto& [name, parser] : verbs()) known.append(", ").append(name);
      line.expected(known);
    }
    if (!line.done()) line.expected("the end of the line");
  }
  return out;
}

}  // namespace trireme::schedule

// SPDX-License-Identifier: Apache-2.0
#include "trireme/timeline/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/schedule/text.hpp"

namespace trireme::timeline {
namespace {

double microseconds(timeline::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

/// The ops that a span stands for.
std::string name_of(const timeline::Span& span, const schedule::Schedule& schedule, const model::Model& model) {
  const auto text = [&](int op) { return schedule::print(schedule.ops[static_cast<std::size_t>(op)], model); };
  return span.last == span.op ? text(span.op) : fmt::format("{} ... {}", text(span.op), text(span.last));
}

}  // namespace

std::string chrome_trace(std::span<const timeline::Span> spans, const schedule::Schedule& schedule,
                         const model::Model& model, const TraceProcess& process, std::span<const Kernel> kernels) {
  using Json = nlohmann::ordered_json;
  const int rank = process.rank;
  Json events = Json::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", process.name}}}});
  events.push_back({{"name", "process_sort_index"}, {"ph", "M"}, {"pid", rank}, {"args", {{"sort_index", rank}}}});
  for (const schedule::Lane lane : schedule::all_lanes) {
    const bool used = std::any_of(schedule.ops.begin(), schedule.ops.end(),
                                  [&](const schedule::Op& op) { return schedule::lane_of(op) == lane; });
    if (!used) continue;
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"tid", static_cast<int>(lane)},
                      {"args", {{"name", schedule::to_text(lane)}}}});
  }
  for (const timeline::Span& span : spans) {
    const schedule::Op& op = schedule.ops[static_cast<std::size_t>(span.op)];
    events.push_back({{"name", name_of(span, schedule, model)},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", static_cast<int>(schedule::lane_of(op))},
                      {"ts", microseconds(span.begin - process.origin)},
                      {"dur", microseconds(span.end - span.begin)},
                      {"args", {{"step", span.step + 1}, {"op", span.op}}}});
    for (const device::Space space : {device::Space::device, device::Space::host}) {
      Json bytes;
      for (const device::Category category : device::all_categories())
        bytes[std::string(device::to_text(category))] =
            span.memory[static_cast<std::size_t>(space)].current[category].value;
      events.push_back({{"name", fmt::format("{} memory", device::to_text(space))},
                        {"ph", "C"},
                        {"pid", rank},
                        {"ts", microseconds(span.end - process.origin)},
                        {"args", std::move(bytes)}});
    }
  }
  constexpr std::int64_t first_stream_row = 100;  // after the lanes
  std::set<std::int64_t> streams;
  const auto first = std::min_element(
      spans.begin(), spans.end(), [](const timeline::Span& a, const timeline::Span& b) { return a.begin < b.begin; });
  for (const Kernel& kernel : kernels) {
    if (first == spans.end() || kernel.begin < first->begin) continue;
    if (streams.insert(kernel.stream).second)
      events.push_back({{"name", "thread_name"},
                        {"ph", "M"},
                        {"pid", rank},
                        {"tid", first_stream_row + kernel.stream},
                        {"args", {{"name", fmt::format("GPU stream {}", kernel.stream)}}}});
    events.push_back({{"name", kernel.name},
                      {"cat", "kernel"},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", first_stream_row + kernel.stream},
                      {"ts", microseconds(kernel.begin - process.origin)},
                      {"dur", microseconds(kernel.end - kernel.begin)}});
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace trireme::timeline

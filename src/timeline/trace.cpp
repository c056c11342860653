// SPDX-License-Identifier: Apache-2.0
#include "trireme/timeline/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::timeline {
namespace {

using Json = nlohmann::ordered_json;

double microseconds(timeline::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

/// Names of the ops of a span.
std::string name_of(const timeline::Span& span, const schedule::Schedule& schedule, const model::Model& model) {
  const auto text = [&](int op) { return schedule::print(schedule.ops[static_cast<std::size_t>(op)], model); };
  return span.last == span.op ? text(span.op) : fmt::format("{} ... {}", text(span.op), text(span.last));
}

/// The category of a lane's ops, by which viewers filter.
const char* category_of(schedule::Lane lane) {
  using enum schedule::Lane;
  switch (lane) {
    case compute:
    case host:
    case optimizer: return "compute";
    case device_to_host:
    case host_to_device: return "copy";
    case gather:
    case reduce:
    case tensor:
    case context:
    case expert:
    case send:
    case receive: return "communication";
  }
  throw BugError("a lane is not of the schedule's");
}

/// The category of a GPU's activity, as PyTorch's profiler has it.
const char* category_of(const Kernel& kernel) {
  if (kernel.name.starts_with("Memcpy")) return "gpu_memcpy";
  return kernel.name.starts_with("Memset") ? "gpu_memset" : "kernel";
}

/// Adds counters of the memory in use, in the order of time: at the end of the first op of a step and at each change.
void add_memory(Json& events, std::span<const timeline::Span> spans, const TraceProcess& process) {
  std::vector<const timeline::Span*> by_end;
  for (const timeline::Span& span : spans) by_end.push_back(&span);
  std::ranges::stable_sort(by_end, {}, [](const timeline::Span* span) { return span->end; });
  for (const device::Space space : {device::Space::device, device::Space::host}) {
    Json last;
    std::int64_t step = -1;
    for (const timeline::Span* span : by_end) {
      Json bytes;
      for (const device::Category category : device::all_categories())
        bytes[std::string(device::to_text(category))] =
            span->memory[static_cast<std::size_t>(space)].current[category].value;
      if (bytes == last && span->step <= step) continue;
      last = bytes;
      step = std::max(step, span->step);
      events.push_back({{"name", fmt::format("{} memory", device::to_text(space))},
                        {"cat", "memory"},
                        {"ph", "C"},
                        {"pid", process.rank},
                        {"ts", microseconds(span->end - process.origin)},
                        {"args", std::move(bytes)}});
    }
  }
}

/// One end of the arrow from a send to its receive: both have the same name and number on their ranks.
template <class Message>
Json flow_event(const Message& message, const timeline::Span& span, const TraceProcess& process) {
  constexpr bool sends = std::is_same_v<Message, schedule::Send>;
  const int ranks_away = sends ? 0 : message.peer - process.pipeline_rank;
  const int sender = process.rank + ranks_away * process.pipeline_stride;
  const std::string name = fmt::format("e{} m{}{}", message.edge.value, message.microbatch.value,
                                       message.phase == schedule::Phase::backward ? " gradient" : "");
  constexpr std::uint64_t exact_in_json = (std::uint64_t{1} << 53U) - 1;
  constexpr double inside = 1e-3;  // a viewer binds an arrow to the span around its time
  const double begin = microseconds(span.begin - process.origin), end = microseconds(span.end - process.origin);
  Json event{{"name", name},
             {"cat", "pipeline"},
             {"ph", sends ? "s" : "f"},
             {"id", fnv1a(fmt::format("{} step {} from {}", name, span.step, sender)) & exact_in_json},
             {"pid", process.rank},
             {"tid", static_cast<int>(sends ? schedule::Lane::send : schedule::Lane::receive)},
             {"ts", sends ? begin : std::max(begin, end - inside)}};
  if (!sends) event["bp"] = "e";
  return event;
}

}  // namespace

std::string chrome_trace(std::span<const timeline::Span> spans, const schedule::Schedule& schedule,
                         const model::Model& model, const TraceProcess& process, std::span<const Kernel> kernels) {
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
                      {"cat", category_of(schedule::lane_of(op))},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", static_cast<int>(schedule::lane_of(op))},
                      {"ts", microseconds(span.begin - process.origin)},
                      {"dur", microseconds(span.end - span.begin)},
                      {"args", {{"step", span.step + 1}, {"op", span.op}}}});
    if (const auto* send = std::get_if<schedule::Send>(&op)) events.push_back(flow_event(*send, span, process));
    if (const auto* receive = std::get_if<schedule::Receive>(&op))
      events.push_back(flow_event(*receive, span, process));
  }
  add_memory(events, spans, process);
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
                      {"cat", category_of(kernel)},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", first_stream_row + kernel.stream},
                      {"ts", microseconds(kernel.begin - process.origin)},
                      {"dur", microseconds(kernel.end - kernel.begin)},
                      {"args", {{"stream", kernel.stream}}}});
  }
  return Json{{"traceEvents", std::move(events)},
              {"displayTimeUnit", "ms"},
              {"distributedInfo", {{"rank", rank}, {"world_size", process.ranks}}}}
      .dump();
}

}  // namespace trireme::timeline

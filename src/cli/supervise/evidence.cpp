// SPDX-License-Identifier: Apache-2.0
#include "cli/supervise/evidence.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "trireme/base/text.hpp"

namespace trireme::cli {
namespace {

/// The text of `line` behind `phrase`.
std::optional<std::string_view> behind(std::string_view line, std::string_view phrase) {
  const std::size_t at = line.find(phrase);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + phrase.size());
}

bool contains(std::string_view line, std::string_view phrase) { return line.find(phrase) != std::string_view::npos; }

/// A host name at the beginning of `text`, without punctuation that follows it.
std::string_view host_in(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '-' ||
                               text[end] == '_' || text[end] == '.'))
    ++end;
  while (end > 0 && text[end - 1] == '.') --end;
  return text.substr(0, end);
}

/// Signals by which a failing node or program ends a task, as srun prints them.
bool is_fatal_signal(std::string_view how) {
  constexpr std::array<std::string_view, 6> signals{"Killed",  "Segmentation fault",  "Bus error",
                                                    "Aborted", "Illegal instruction", "Out Of Memory"};
  return std::ranges::any_of(signals, [&](std::string_view signal) { return how.starts_with(signal); });
}

}  // namespace

void Evidence::fail(std::string_view line) {
  failed_ = true;
  if (line_.empty()) line_ = line;
}

void Evidence::name(std::string_view node, std::string_view line) {
  if (node.empty()) return;
  if (!named_) line_ = line;
  failed_ = named_ = true;
  nodes_.emplace(node);
}

/// "rank 3 on n2, rank 4 on n2, and 5 more."
void Evidence::name_ranks(std::string_view text, std::string_view line) {
  while (text.starts_with("rank ")) {
    const auto on = behind(text, " on ");
    if (!on) return;
    const std::string_view node = host_in(*on);
    name(node, line);
    text = on->substr(node.size());
    if (!text.starts_with(", ")) return;
    text.remove_prefix(2);
  }
}

void Evidence::look(std::string_view line) {
  if (contains(line, "Out Of Memory") || contains(line, "oom-kill") || contains(line, "oom_kill"))
    out_of_memory_ = true;
  if (const auto stops = behind(line, "saved: the run stops to replace node ")) {
    for (std::string_view names = *stops; !names.empty(); names.remove_prefix(std::min<std::size_t>(1, names.size()))) {
      const std::string_view node = host_in(names);
      if (node.empty()) break;
      stragglers_.emplace(node);
      names.remove_prefix(node.size());
      if (!names.starts_with(",") || names.starts_with(", ")) break;
    }
    return;
  }
  const bool launcher = line.starts_with("srun: ") || line.starts_with("slurmstepd");
  if (launcher) {
    if (const auto node = behind(line, "Node failure on ")) return name(host_in(*node), line);
    if (contains(line, "Task launch for ") && contains(line, " failed on node "))
      return name(host_in(*behind(line, " failed on node ")), line);
    if (contains(line, "Job step aborted") || (contains(line, " STEP ") && contains(line, " CANCELLED "))) {
      ending_ = true;
      return fail(line);
    }
    // "srun: error: n2: task 3: Killed"
    if (const auto error = behind(line, "srun: error: "); error && !ending_ && !named_) {
      const std::string_view node = host_in(*error);
      const std::string_view rest = error->substr(node.size());
      if (const auto how = behind(rest, rest.starts_with(": tasks ") ? ": tasks " : ": task ");
          rest.starts_with(": task") && how)
        if (const auto signal = behind(*how, ": "); signal && is_fatal_signal(*signal)) name(node, line);
    }
    return;
  }
  if (named_) return;
  // Open MPI: mpirun, or mpiexec, as it was called.
  if (contains(line, " noticed that process rank ") && contains(line, " exited on signal "))
    if (const auto node = behind(line, " on node ")) return name(host_in(*node), line);
  if (contains(line, "Remote daemon:"))
    if (const auto node = behind(line, " on node ")) return name(host_in(*node), line);
  // Trireme's ranks.
  if (!contains(line, "error: Hang: ")) return;
  fail(line);
  for (const std::string_view phrase : {"No longer running: ", "Wrote nothing: ", " lost the connection to "})
    if (const auto ranks = behind(line, phrase)) {
      name_ranks(*ranks, line);
      if (named_) return;
    }
}

}  // namespace trireme::cli

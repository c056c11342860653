// SPDX-License-Identifier: Apache-2.0
#include "train/record/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "train/record/memory_snapshot.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/device/history.hpp"
#include "trireme/mpi/common_moment.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/timeline/trace.hpp"

namespace trireme::train {
namespace {

/// Steps between looks at who is slow: enough for a median that a busy machine does not disturb.
constexpr std::uint32_t straggler_window = 64;
constexpr std::size_t most_memory_events = 500'000;

bool several_nodes(const mpi::Communicator& world) { return world.rank_of_each_node().size() > 1; }

/// "n2" of "rank 3 on n2".
std::string node_of(const std::string& rank) { return rank.substr(rank.rfind(' ') + 1); }

/// Ranks of equal numbers do the same work: data-parallel ones with the same experts.
int work_of(const mesh::Mesh& mesh, int rank) {
  mesh::Coordinates at = mesh.coordinates(Rank{rank});
  const int experts = mesh.expert_rank(at);
  at.replicate = at.shard = 0;
  return mesh.rank_of(at).value * mesh.expert + experts;
}

}  // namespace

Recorder::Recorder(const config::RunConfig& config, const mpi::Communicator& world, WhileFilesAreWritten while_written)
    : config_(config),
      world_(world),
      while_written_(std::move(while_written)),
      recorded_(config.metrics.memory_snapshot) {
  if (recorded_) device::record_memory(most_memory_events);
}

void Recorder::begin(std::int64_t first_step, double load_began) {
  first_step_ = first_step;
  if (!config_.metrics.trace_steps.empty()) trace_origin_ = mpi::common_moment(world_);
  if (world_.rank() != 0) return;
  report::LastStep before;  // of a run that begins again: its rows are removed next
  if (first_step == 0) before = report::last_step(config_.run.output + "/metrics.jsonl");
  rows_.emplace(config_, first_step);
  goodput_.emplace(config_, load_began, first_step, first_step == 0 ? before : rows_->kept().before);
}

bool Recorder::evaluated(std::int64_t step) const {
  return !rows_ || rows_->kept().lines == 0 || rows_->kept().evaluated_step >= step + 1;
}

bool Recorder::traces(std::int64_t step) const {
  const std::vector<std::int64_t>& steps = config_.metrics.trace_steps;
  return std::find(steps.begin(), steps.end(), step + 1) != steps.end();
}

bool Recorder::snapshot_after(std::int64_t step) const {
  const std::vector<std::int64_t>& traced = config_.metrics.trace_steps;
  const std::int64_t last = traced.empty() ? first_step_ + 2 : *std::max_element(traced.begin(), traced.end());
  return recorded_ && (step + 1 >= last || step + 1 == config_.train.steps);
}

void Recorder::begin_step(const Job& job, std::int64_t step) {
  if (!traces(step) || recording_ || !job.options().device.is_cuda()) return;
  try {
    recording_.emplace();
  } catch (const std::exception& error) {
    log::warning(fmt::format("metrics.trace_steps: no kernels in the trace: {}", error.what()));
  }
}

void Recorder::end_recording() {
  std::vector<timeline::Kernel> kernels;
  try {
    kernels = recording_->end();
  } catch (const std::exception& error) {
    log::warning(fmt::format("metrics.trace_steps: no kernels in the trace: {}", error.what()));
  }
  recording_.reset();
  if (kernels.empty() && world_.rank() == 0)
    log::info("metrics.trace_steps: no kernels in the trace: libtorch's profiler recorded none on this GPU");
  kernels_.insert(kernels_.end(), std::make_move_iterator(kernels.begin()), std::make_move_iterator(kernels.end()));
}

void Recorder::add_step(Job& job, std::int64_t step, std::optional<double> own_seconds) {
  step_ = step;
  if (own_seconds) step_times_.add(*own_seconds);
  if (job.options().record_timeline) take_spans(job, step);
  if (snapshot_after(step)) write_snapshot(job);
  if (step_times_.steps() == straggler_window) report_step_times();
  if (own_seconds && several_nodes(world_)) own_seconds_.push_back(*own_seconds);
  if (own_seconds_.size() == StragglerScores::window_steps) compare_nodes(job);
  if (reports_.due()) while_written_("writing what could not be written before", step_, [&] { reports_.retry(); });
}

/// Keeps the spans of the requested steps; a lane's work ahead belongs to the step it is for.
void Recorder::take_spans(Job& job, std::int64_t step) {
  for (const timeline::Span& span : job.executor().timeline().take())
    if (traces(first_step_ + span.step)) spans_.push_back(span);
  if (!traces(step) || spans_.empty()) return;
  // Not between steps that are traced one after the other: they would show the writing.
  unwritten_trace_ = true;
  if (!traces(step + 1) || step + 1 == config_.train.steps) write_trace(job);
}

void Recorder::write_trace(Job& job) {
  unwritten_trace_ = false;
  if (recording_) end_recording();
  write("writing the trace", fmt::format("/trace-rank{}.json", world_.rank()),
        timeline::chrome_trace(spans_, job.executor().schedule(), job.model(),
                               {.rank = world_.rank(),
                                .name = world_.name_of(world_.rank()),
                                .origin = trace_origin_,
                                .pipeline_rank = job.at().pipeline,
                                .pipeline_stride = job.mesh().stride(mesh::Axis::pipeline),
                                .ranks = world_.size()},
                               kernels_));
}

void Recorder::write(const char* what, const std::string& name, std::string text) {
  while_written_(what, step_, [&] { reports_.write(config_.run.output + name, std::move(text)); });
}

/// Requires idle lanes.
void Recorder::write_snapshot(Job& job) {
  write("writing the memory snapshot", fmt::format("/memory-rank{}.pickle", world_.rank()),
        memory_snapshot(device::memory_history(), job.executor().schedule(), job.model()));
  device::record_memory(0);
  recorded_ = false;
}

void Recorder::finish(Job& job) {
  if (unwritten_trace_) write_trace(job);
  report_step_times();
  reports_.finish();
}

void Recorder::compare_nodes(const Job& job) {
  const std::string mine(reinterpret_cast<const char*>(own_seconds_.data()), own_seconds_.size() * sizeof(double));
  own_seconds_.clear();
  const std::vector<std::string> texts = mpi::gather_texts(world_, mine);
  if (world_.rank() != 0) return;
  if (!scores_) {
    std::vector<int> node_of_rank, work;
    for (int rank = 0; rank < world_.size(); ++rank) {
      const std::string node = node_of(world_.name_of(rank));
      const auto known = std::ranges::find(node_names_, node);
      node_of_rank.push_back(static_cast<int>(known - node_names_.begin()));
      if (known == node_names_.end()) node_names_.push_back(node);
      work.push_back(work_of(job.mesh(), rank));
    }
    scores_.emplace(std::move(node_of_rank), std::move(work));
  }
  std::vector<std::vector<double>> own_by_rank;
  for (const std::string& text : texts) {
    own_by_rank.emplace_back(text.size() / sizeof(double));
    std::memcpy(own_by_rank.back().data(), text.data(), text.size());
  }
  for (const Straggler& straggler : scores_->add(own_by_rank)) {
    const std::string& name = node_names_[static_cast<std::size_t>(straggler.node)];
    log::warning(to_text(straggler, name, static_cast<int>(node_names_.size()), step_ + 1));
    if (("," + stragglers_ + ",").find("," + name + ",") == std::string::npos)
      stragglers_ += (stragglers_.empty() ? "" : ",") + name;
  }
}

std::optional<Recorder::Nodes> Recorder::nodes() const {
  if (!scores_ || !scores_->highest_ratio()) return std::nullopt;
  std::vector<std::string> names;
  for (const int node : scores_->current()) names.push_back(node_names_[static_cast<std::size_t>(node)]);
  return Nodes{.highest_ratio = *scores_->highest_ratio(), .stragglers = join(names, ", ")};
}

void Recorder::report_step_times() {
  const std::vector<StepTimes> by_rank = StepTimes::gather(world_, std::exchange(step_times_, {}));
  if (world_.rank() != 0) return;
  const auto name = [this](int rank) { return world_.name_of(rank); };
  const std::optional<Slowest> found = slowest(by_rank);
  if (!found) return;
  write("writing the step times", "/step_times.json", to_json(by_rank, name));
  if (found->straggles() && by_rank.front().steps() == straggler_window) log::warning(to_text(*found, name));
}

}  // namespace trireme::train

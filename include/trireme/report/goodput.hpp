// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Goodput: the share of a run's time that new steps take, over all its attempts (starts, restarts, requeued jobs).
/// Facts are in run.output/goodput.jsonl, to which rank 0 and `trireme supervise` append events. metrics.jsonl is cut
/// back to the restored step at a restart, and no longer shows lost steps.
namespace trireme::report {

/// One line of goodput.jsonl.
struct GoodputEvent {
  enum class Kind : std::uint8_t {
    start,       ///< an attempt begins to load
    load,        ///< its parameters are there
    caught_up,   ///< the last step that an earlier attempt had finished is done again
    save,        ///< the training was stalled by a save
    evaluation,  ///< an evaluation ended
    end,         ///< an attempt ended in order
    failure,     ///< by the supervisor: all ranks ended without request
    restart      ///< by the supervisor: the launcher is started again
  };
  Kind kind = Kind::start;
  double time = 0;        ///< Unix time, at the end of the activity
  std::int64_t step = 0;  ///< finished steps. start, failure: the last one known of all attempts before
  double seconds = 0;     ///< save, evaluation: duration. end: time since the last step, save or evaluation
  double began = 0;       ///< start: of rank 0's process. failure: of the launcher. Unix time
  double step_time = 0;   ///< start, failure: when `step` ended; 0: unknown
  int life = 0;           ///< start: starts before by the same supervisor
};

[[nodiscard]] std::string to_json(const GoodputEvent& event);
/// Lines that are no events, such as one cut off by a kill, are left out.
[[nodiscard]] std::vector<GoodputEvent> parse_goodput_events(std::string_view text);

/// Seconds of a run by part. Their sum is the time from its first event to its last one.
struct Goodput {
  double new_steps = 0;
  double repeated_steps = 0;  ///< that an earlier attempt had finished after its last save
  double saves = 0, evaluations = 0;
  double load = 0;          ///< of checkpoints; initialization of parameters
  double start = 0;         ///< health checks, launcher, processes, communicators
  double detection = 0;     ///< from the last finished step to the supervisor's report of the failure
  double other = 0;         ///< end of an attempt: exports, report
  double between_jobs = 0;  ///< in the queue, or until the next start by hand; no part of `total`
  std::int64_t repeated = 0;
  std::int64_t attempts = 0, failures = 0;

  [[nodiscard]] double total() const {
    return new_steps + repeated_steps + saves + evaluations + load + start + detection + other;
  }
  /// new_steps / total; 0 before the first event.
  [[nodiscard]] double share() const { return total() > 0 ? new_steps / total() : 0; }
};

/// "87.4% of 3 min 02 s in 2 attempts: detection 1.2 s, start 3.1 s, 3 repeated steps 2.2 s".
[[nodiscard]] std::string to_text(const Goodput& goodput);

/// Names of the parts and their seconds, new steps first; parts below 50 ms are left out.
[[nodiscard]] std::vector<std::pair<std::string, double>> named_parts(const Goodput& goodput);

/// Goodput from events in the order of the file. Clocks of nodes differ: a time before that of an earlier event counts
/// as equal to it.
class GoodputClock {
 public:
  void add(const GoodputEvent& event);
  /// Parts until `time`, at which the current attempt has finished `step` steps. After its end, and for a time before
  /// the last event: parts until then.
  [[nodiscard]] Goodput at(double time, std::int64_t step) const;
  [[nodiscard]] const Goodput& parts() const { return parts_; }
  /// Whether the last attempt trains, or ended without an event.
  [[nodiscard]] bool steps() const { return phase_ == Phase::stepping; }
  /// Steps that any attempt has finished.
  [[nodiscard]] std::int64_t furthest() const { return furthest_; }

 private:
  enum class Phase : std::uint8_t { none, loading, stepping, restarting, ended };

  void spend(double& part, double until);
  void step_until(double time, std::int64_t step);
  void step_until_row(const GoodputEvent& event);
  void add_start(const GoodputEvent& event);
  void add_failure(const GoodputEvent& event);

  Phase phase_ = Phase::none;
  double now_ = 0;
  std::int64_t step_ = 0, furthest_ = 0;
  Goodput parts_;
};

/// The last row of a metrics.jsonl: a step and when it ended. Zeros if there is none, or the file cannot be read.
struct LastStep {
  std::int64_t step = 0;
  double time = 0;
};
[[nodiscard]] LastStep last_step(const std::string& metrics);

/// Appends an event to the record of the run in `output`, while no rank runs. Throws WriteError.
void append_goodput_event(const std::string& output, const GoodputEvent& event);

/// Goodput of the run that wrote to `directory`, until its last event or row; nothing without a start in the record.
[[nodiscard]] std::optional<Goodput> read_goodput(const std::string& directory);

/// The file of the events in run.output.
[[nodiscard]] std::string goodput_file(const std::string& output);

}  // namespace trireme::report

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/data/sampler.hpp"

namespace trireme::data {

/// A target that does not count: the loss skips it.
inline constexpr std::int32_t ignored_target = -1;

/// The tokens of one microbatch of one dp rank.
struct MicrobatchTokens {
  std::vector<std::int32_t> inputs;   ///< [micro, seq_len]
  std::vector<std::int32_t> targets;  ///< [micro, seq_len]; ignored_target if they do not count
  std::int64_t counted = 0;           ///< targets that count
  std::int64_t padding = 0;           ///< inputs of packed rows that belong to no document
  /// [micro, seq_len] with data.document_mask, else empty: where each input's document begins, counted from its row's
  /// first token (Dataset::read_document_begins)
  std::vector<std::int32_t> document_begins = {};
};

/// Samples of one dp rank in one optimizer step.
struct StepBatch {
  std::int64_t first_sample = 0;               ///< of the run: the cursor at the start of the step
  std::vector<MicrobatchTokens> microbatches;  ///< [accumulation]
  std::int64_t counted = 0;                    ///< targets of this dp rank that count, over all microbatches
  std::int64_t padding = 0;                    ///< the same of MicrobatchTokens::padding
  bool masked = false;  ///< files mark the targets that count, or are packed: how many differs from step to step
  bool packed = false;
  double read_seconds = 0;  ///< spent reading it, by the reader thread
};

/// The part of every step that a rank reads, and its partition. Ranks of one tensor group read the same.
struct BatchShape {
  std::int64_t dp_rank = 0;
  std::int64_t dp_size = 1;
  std::int64_t micro = 1;         ///< sequences per microbatch and dp rank
  std::int64_t accumulation = 1;  ///< microbatches per step
  /// Targets of samples from this position on do not count.
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  /// Sequences per step over all dp ranks.
  [[nodiscard]] std::int64_t global() const { return dp_size * micro * accumulation; }
};

/// List of token files in the run file. Validation is read in order, neither shuffled nor weighted, with the tails of
/// its files, and ends after one epoch: targets beyond it do not count, so that ceil(samples / global) steps from
/// position 0 count every one of its targets once.
enum class Split { train, validation };

/// The open token files of one list: one dataset per weighted source, else one of all files.
using Datasets = std::shared_ptr<const std::vector<Dataset>>;

/// The sources of a list.
[[nodiscard]] const std::vector<config::TokenSource>& sources_of(const config::Data& data, Split split);

/// places: of the list's sources, if they have been found already. plans: of the sources, if they are packed and have
/// been planned already. Throws DataError as TokenFile and Dataset do, ConfigError as require_document_ends and
/// plan_packing.
[[nodiscard]] Datasets open_split(const config::Data& data, Split split, std::int64_t vocab_size,
                                  std::span<const TokenPlace> places = {}, std::span<const PackingPlan> plans = {});

/// Step batches of one dp rank, in order, read ahead by a background thread.
///
/// Microbatch a, row j of a step that starts at sample c holds sample c + a * (dp_size * micro) + dp_rank * micro + j
/// of the run, so the samples of a step do not depend on its partition.
class BatchReader {
 public:
  /// Opens the files and begins to read `data.prefetch_batches` steps ahead (0: no thread, `next` reads).
  /// run_seed: used where data.seed is absent. from: where to begin; `{.position = n}` alone is enough, at about
  /// 10 ns a sample and source when sources are weighted. Throws DataError as TokenFile, Dataset and Sampler::restore
  /// do.
  BatchReader(const config::Data& data, Split split, std::int64_t vocab_size, std::uint64_t run_seed, BatchShape shape,
              SamplerState from = {});
  /// Reads files that are open already, those of `split`.
  BatchReader(Datasets files, const config::Data& data, Split split, std::uint64_t run_seed, BatchShape shape,
              SamplerState from = {});
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;
  /// Stops the thread after the read it is in.
  ~BatchReader() = default;

  /// The next step's batch; waits until it is read. Throws the reader thread's exception for this step.
  [[nodiscard]] StepBatch next();

  /// Start of the step after the last one returned by `next`; saved in checkpoints.
  [[nodiscard]] const SamplerState& state() const noexcept { return state_; }
  /// One per weighted source, else one of all files.
  [[nodiscard]] const std::vector<Dataset>& datasets() const noexcept { return *datasets_; }
  /// Samples of all sources: an epoch, where sources are not weighted.
  [[nodiscard]] std::int64_t samples() const noexcept;
  /// The most that its step batches hold at once, the one in use included.
  [[nodiscard]] Bytes buffer_bytes() const noexcept;

 private:
  struct Ready {
    StepBatch batch;
    SamplerState after;
  };
  Ready read_step();
  void read_row(MicrobatchTokens& microbatch);
  void read_ahead(const std::stop_token& stop);

  Datasets datasets_;
  Sampler sampler_;  ///< the reader thread's once it runs
  BatchShape shape_;
  std::int64_t seq_len_;
  bool document_mask_;
  std::optional<std::int64_t> document_end_;
  std::vector<std::int32_t> ignored_;  ///< sorted
  std::vector<std::int32_t> sample_;   ///< [seq_len + 1]; the reader thread's
  bool masked_;                        ///< files of any dataset mark the targets that count
  bool padded_;                        ///< samples at the end of files, or packed ones, have fewer targets
  bool packed_;
  std::vector<std::uint8_t> mask_;  ///< [seq_len], all 1 if none is read; the reader thread's
  std::size_t prefetch_;
  std::int64_t end_;  ///< targets of samples from this position on do not count
  SamplerState state_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Ready> ready_;
  std::exception_ptr error_;
  std::jthread thread_;  ///< last: joins before its data are destroyed
};

}  // namespace trireme::data

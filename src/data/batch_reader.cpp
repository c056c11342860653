// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/batch_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <system_error>

#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/data/document_checks.hpp"

namespace trireme::data {
namespace {

std::vector<Source> sampler_sources(const std::vector<Dataset>& datasets, const config::Data& data, Split split) {
  std::vector<Source> sources;
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    const bool weighted = split == Split::train && data.weighted;
    sources.push_back({.samples = datasets[i].samples(), .weight = weighted ? data.train[i].weight : 1.0});
  }
  return sources;
}

std::optional<std::uint64_t> shuffle_seed(const config::Data& data, Split split, std::uint64_t run_seed) {
  if (split == Split::validation || !data.shuffle) return std::nullopt;
  return data.seed.value_or(run_seed);
}

}  // namespace

const std::vector<config::TokenSource>& sources_of(const config::Data& data, Split split) {
  return split == Split::train ? data.train : data.validation;
}

Datasets open_split(const config::Data& data, Split split, std::int64_t vocab_size, std::span<const TokenPlace> places,
                    std::span<const PackingPlan> plans) {
  std::vector<PackingPlan> planned;
  if (data.packing == config::Packing::best_fit && plans.empty())
    plans = planned = plan_packing(sources_of(data, split), data.format, data.seq_len, vocab_size, places);
  auto datasets = std::make_shared<const std::vector<Dataset>>(
      open_datasets(sources_of(data, split), split == Split::train && data.weighted, data.format, data.seq_len,
                    vocab_size, places, split == Split::validation ? FileTail::padded : FileTail::dropped, plans));
  require_document_ends(data, *datasets);
  return datasets;
}

BatchReader::BatchReader(const config::Data& data, Split split, std::int64_t vocab_size, std::uint64_t run_seed,
                         BatchShape shape, SamplerState from)
    : BatchReader(open_split(data, split, vocab_size), data, split, run_seed, shape, std::move(from)) {}

BatchReader::BatchReader(Datasets files, const config::Data& data, Split split, std::uint64_t run_seed,
                         BatchShape shape, SamplerState from)
    : datasets_(std::move(files)),
      sampler_(sampler_sources(*datasets_, data, split), shuffle_seed(data, split, run_seed)),
      shape_(shape),
      seq_len_(data.seq_len),
      document_mask_(data.document_mask),
      document_end_(data.document_end),
      ignored_(data.ignore_targets.begin(), data.ignore_targets.end()),
      sample_(static_cast<std::size_t>(data.seq_len + 1)),
      masked_(std::ranges::any_of(*datasets_, &Dataset::masked)),
      padded_(std::ranges::any_of(*datasets_, &Dataset::padded)),
      packed_(std::ranges::any_of(*datasets_, [](const Dataset& dataset) { return dataset.packing().has_value(); })),
      mask_(static_cast<std::size_t>(data.seq_len), 1),
      prefetch_(static_cast<std::size_t>(data.prefetch_batches)),
      end_(split == Split::validation ? std::min(shape.end, samples()) : shape.end) {
  invariant(shape.dp_rank >= 0 && shape.dp_rank < shape.dp_size && shape.micro > 0 && shape.accumulation > 0,
            "a batch has a shape");
  std::ranges::sort(ignored_);
  sampler_.restore(std::move(from));
  state_ = sampler_.state();
  if (prefetch_ > 0) try {
      thread_ = std::jthread([this](const std::stop_token& stop) { read_ahead(stop); });
    } catch (const std::system_error& error) {
      prefetch_ = 0;
      log::warning(fmt::format(
          "no thread can be started to read tokens ahead ({}), so steps wait for them; raise ulimit -u", error.what()));
    }
}

void BatchReader::read_row(MicrobatchTokens& microbatch) {
  const bool within = sampler_.state().position < end_;
  const SamplePlace place = sampler_.next();
  const Dataset& dataset = (*datasets_)[static_cast<std::size_t>(place.source)];
  dataset.read(place.sample, sample_);
  if (masked_ || padded_) dataset.read_mask(place.sample, mask_);
  microbatch.padding += seq_len_ - dataset.inputs_of_documents(place.sample);
  if (document_mask_) {
    auto& begins = microbatch.document_begins;
    begins.resize(begins.size() + static_cast<std::size_t>(seq_len_));
    dataset.read_document_begins(place.sample, sample_, document_end_,
                                 std::span(begins).last(static_cast<std::size_t>(seq_len_)));
  }
  microbatch.inputs.insert(microbatch.inputs.end(), sample_.begin(), sample_.end() - 1);
  for (std::size_t i = 0; i < mask_.size(); ++i) {
    const std::int32_t token = sample_[i + 1];
    const bool counts = within && mask_[i] != 0 && !std::ranges::binary_search(ignored_, token);
    microbatch.targets.push_back(counts ? token : ignored_target);
    microbatch.counted += counts ? 1 : 0;
  }
}

BatchReader::Ready BatchReader::read_step() {
  fault::point("data.read");
  const auto start = std::chrono::steady_clock::now();
  StepBatch batch{
      .first_sample = sampler_.state().position, .microbatches = {}, .masked = masked_ || packed_, .packed = packed_};
  for (std::int64_t a = 0; a < shape_.accumulation; ++a) {
    MicrobatchTokens& microbatch = batch.microbatches.emplace_back();
    microbatch.inputs.reserve(static_cast<std::size_t>(shape_.micro * seq_len_));
    microbatch.targets.reserve(static_cast<std::size_t>(shape_.micro * seq_len_));
    if (document_mask_) microbatch.document_begins.reserve(static_cast<std::size_t>(shape_.micro * seq_len_));
    sampler_.skip(shape_.dp_rank * shape_.micro);
    for (std::int64_t row = 0; row < shape_.micro; ++row) read_row(microbatch);
    sampler_.skip((shape_.dp_size - 1 - shape_.dp_rank) * shape_.micro);
    batch.counted += microbatch.counted;
    batch.padding += microbatch.padding;
  }
  batch.read_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {.batch = std::move(batch), .after = sampler_.state()};
}

void BatchReader::read_ahead(const std::stop_token& stop) {
  while (true) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [this] { return ready_.size() < prefetch_; })) return;
    lock.unlock();
    if (stop.stop_requested()) return;
    std::optional<Ready> ready;
    std::exception_ptr error;
    try {
      ready = read_step();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (ready) ready_.push_back(std::move(*ready));
    error_ = error;
    changed_.notify_all();
    if (error) return;
  }
}

StepBatch BatchReader::next() {
  Ready ready;
  if (prefetch_ == 0) {
    ready = read_step();
  } else {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty() || error_; });
    if (ready_.empty()) std::rethrow_exception(error_);
    ready = std::move(ready_.front());
    ready_.pop_front();
    changed_.notify_all();
  }
  state_ = std::move(ready.after);
  return std::move(ready.batch);
}

std::int64_t BatchReader::samples() const noexcept {
  std::int64_t sum = 0;
  for (const Dataset& dataset : *datasets_) sum += dataset.samples();
  return sum;
}

Bytes BatchReader::buffer_bytes() const noexcept {
  const std::int64_t tokens = shape_.accumulation * shape_.micro * seq_len_;
  const std::int64_t values = tokens * (document_mask_ ? 3 : 2);
  return {(static_cast<std::int64_t>(prefetch_) + 1) * values * static_cast<std::int64_t>(sizeof(std::int32_t))};
}

}  // namespace trireme::data

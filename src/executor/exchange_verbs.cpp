// SPDX-License-Identifier: Apache-2.0
// Exchanges between stages over the tensor and the context axis: packed, moved by one collective, unpacked, delivered.
// On CPUs plain loops, since a lane's thread has no team.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "executor/arithmetic.hpp"
#include "executor/verbs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/kernels/vocabulary.hpp"
#include "trireme/model/context.hpp"
#include "trireme/model/tensor_plan.hpp"

namespace trireme::executor {
namespace {

using enum model::TensorId;

/// Calls move(rank, sequence, first, position, count) for every run of tokens: `first` counts the rows that a context
/// rank has of its sequences, `position` those of all whole sequences.
template <class Move>
void each_run(int ranks, std::int64_t sequences, std::int64_t seq_len, const Move& move) {
  for (int rank = 0; rank < ranks; ++rank) {
    const model::ContextPart part{.rank = rank, .ranks = ranks};
    const std::int64_t run = part.run(seq_len);
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      const std::int64_t held = 2 * run * sequence, whole = seq_len * sequence;
      move(rank, held, whole + part.first_run(seq_len), run);
      move(rank, held + run, whole + part.second_run(seq_len), run);
    }
  }
}

/// Moves all heads of a rank's tokens to some heads of all tokens, or back: `part` is of one rank in either form, a
/// matrix [N, width / ranks] for each rank one behind the other. Calls move(bytes of `whole`, bytes of `part`, count)
/// for every piece that is contiguous in both. sections: widths of q, k and v, each of all heads.
template <class Move>
void each_head_part(int ranks, std::int64_t tokens, std::span<const std::int64_t> sections, std::int64_t element,
                    const Move& move) {
  std::int64_t width = 0;
  for (const std::int64_t section : sections) width += section;
  std::int64_t part = 0;
  for (int rank = 0; rank < ranks; ++rank)
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::int64_t column = token * width;
      for (const std::int64_t section : sections) {
        const std::int64_t count = section / ranks * element;
        move((column + rank * (section / ranks)) * element, part, count);
        column += section;
        part += count;
      }
    }
}

/// Copies `count` rows of a contiguous matrix.
void copy_rows(const at::Tensor& from, std::int64_t first, const at::Tensor& to, std::int64_t into,
               std::int64_t count) {
  const std::int64_t row = from.size(1) * static_cast<std::int64_t>(from.element_size());
  std::memcpy(static_cast<std::byte*>(to.mutable_data_ptr()) + into * row,
              static_cast<const std::byte*>(from.const_data_ptr()) + first * row,
              static_cast<std::size_t>(count * row));
}

/// Rows of all ranks' tokens as the ranks hold them, one behind the other, and as the sequences have them.
enum class Order { by_rank, in_sequence };

/// On a GPU: fills `out` with the rows in the other order. A rank's first runs begin the sequences, and its second ones
/// end them, the last rank's first.
void reorder_on_device(const at::Tensor& rows, const at::Tensor& out, Order to, std::int64_t ranks,
                       std::int64_t sequences) {
  const std::int64_t run = rows.size(0) / (2 * ranks * sequences);
  const auto held = [&](const at::Tensor& x, std::int64_t which) {  // [sequences, ranks, run, width]
    return x.view({ranks, sequences, 2, run, x.size(1)}).select(2, which).transpose(0, 1);
  };
  const auto half = [&](const at::Tensor& x, std::int64_t which) {
    return x.view({sequences, 2 * ranks, run, x.size(1)}).narrow(1, which * ranks, ranks);
  };
  if (to == Order::in_sequence) {
    half(out, 0).copy_(held(rows, 0));
    half(out, 1).copy_(held(rows, 1).flip({1}));
  } else {
    held(out, 0).copy_(half(rows, 0));
    held(out, 1).copy_(half(rows, 1).flip({1}));
  }
}

/// The rows in the other order. ranks: of the context axis. sequences: of the microbatch.
at::Tensor reordered(const at::Tensor& rows, Order to, int ranks, std::int64_t sequences) {
  at::Tensor out = at::empty_like(rows);
  if (rows.is_cuda()) {
    reorder_on_device(rows, out, to, ranks, sequences);
    return out;
  }
  const std::int64_t of_rank = rows.size(0) / ranks;
  each_run(ranks, sequences, rows.size(0) / sequences,
           [&](int rank, std::int64_t held, std::int64_t whole, std::int64_t count) {
             if (to == Order::in_sequence)
               copy_rows(rows, rank * of_rank + held, out, whole, count);
             else
               copy_rows(rows, whole, out, rank * of_rank + held, count);
           });
  return out;
}

/// On a GPU: calls move(whole, part) with views [tokens, ranks, width / ranks] of each section: in the layout of all
/// heads of some tokens, and in that of the `part` of `each_head_part`.
template <class Move>
void each_section(const at::Tensor& whole, const at::Tensor& part, std::int64_t ranks,
                  std::span<const std::int64_t> sections, const Move& move) {
  const std::int64_t tokens = whole.size(0);
  const at::Tensor by_rank = part.view({ranks, tokens, whole.size(1) / ranks});
  std::int64_t column = 0;
  for (const std::int64_t section : sections) {
    const std::int64_t width = section / ranks;
    if (section > 0)
      move(whole.narrow(1, column, section).unflatten(1, {ranks, width}),
           by_rank.narrow(2, column / ranks, width).transpose(0, 1));
    column += section;
  }
}

/// The last `width` columns of a matrix, row after row.
at::Tensor last_columns(const at::Tensor& matrix, std::int64_t width) {
  if (matrix.is_cuda()) return matrix.narrow(1, matrix.size(1) - width, width).contiguous();
  at::Tensor out = at::empty({matrix.size(0), width}, matrix.options());
  const auto bytes = static_cast<std::size_t>(width) * matrix.element_size();
  const auto stride = static_cast<std::size_t>(matrix.stride(0)) * matrix.element_size();
  const auto* from = static_cast<const std::byte*>(matrix.const_data_ptr()) +
                     (matrix.size(1) - width) * static_cast<std::int64_t>(matrix.element_size());
  auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
  for (std::int64_t row = 0; row < matrix.size(0); ++row, from += stride, to += bytes) std::memcpy(to, from, bytes);
  return out;
}

/// All heads of this rank's tokens, [tokens, width], as some heads for each rank: [ranks * tokens, width / ranks].
at::Tensor split_heads(const at::Tensor& whole, int ranks, std::span<const std::int64_t> sections) {
  const std::int64_t tokens = whole.size(0);
  at::Tensor out = at::empty({ranks * tokens, whole.size(1) / ranks}, whole.options());
  if (whole.is_cuda()) {
    each_section(whole, out, ranks, sections, [](const at::Tensor& from, const at::Tensor& to) { to.copy_(from); });
    return out;
  }
  const auto* from = static_cast<const std::byte*>(whole.const_data_ptr());
  auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
  each_head_part(ranks, tokens, sections, static_cast<std::int64_t>(whole.element_size()),
                 [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
                   std::memcpy(to + in_part, from + in_whole, static_cast<std::size_t>(count));
                 });
  return out;
}

/// The inverse.
at::Tensor join_heads(const at::Tensor& parts, int ranks, std::span<const std::int64_t> sections) {
  const std::int64_t tokens = parts.size(0) / ranks;
  at::Tensor out = at::empty({tokens, parts.size(1) * ranks}, parts.options());
  if (parts.is_cuda()) {
    each_section(out, parts, ranks, sections, [](const at::Tensor& to, const at::Tensor& from) { to.copy_(from); });
    return out;
  }
  const auto* from = static_cast<const std::byte*>(parts.const_data_ptr());
  auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
  each_head_part(ranks, tokens, sections, static_cast<std::int64_t>(parts.element_size()),
                 [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
                   std::memcpy(to + in_whole, from + in_part, static_cast<std::size_t>(count));
                 });
  return out;
}

/// Writes `columns` into the last columns of a matrix.
void put_last_columns(const at::Tensor& columns, const at::Tensor& matrix) {
  const std::int64_t width = columns.size(1);
  if (columns.is_cuda()) {
    matrix.narrow(1, matrix.size(1) - width, width).copy_(columns);
    return;
  }
  const std::int64_t stride = matrix.size(1), element = static_cast<std::int64_t>(columns.element_size());
  auto* to = static_cast<std::byte*>(matrix.mutable_data_ptr()) + (stride - width) * element;
  const auto* from = static_cast<const std::byte*>(columns.const_data_ptr());
  for (std::int64_t row = 0; row < columns.size(0); ++row)
    std::memcpy(to + row * stride * element, from + row * width * element, static_cast<std::size_t>(width * element));
}

bool sums(schedule::Collective collective) {
  return collective == schedule::Collective::reduce_scatter || collective == schedule::Collective::all_reduce;
}

}  // namespace

void Verbs::run(const schedule::Exchanged& op) {
  const nn::PlainOperators guard;
  const device::ChargeTo charge(device::Category::workspace);
  const schedule::ExchangeRow& row = schedule::row_of(op.kind);
  if (row.lane == schedule::Lane::expert) return exchange_of_experts(op);
  const Frame now = frame(op, op.phase);
  deliver(op, now, unpacked(op, moved(row, packed(op, outgoing(op, now)))));
}

at::Tensor Verbs::outgoing(const schedule::Exchanged& op, const Frame& now) {
  const schedule::TensorRef sent = schedule::sent_by(op, stage_of(op));
  return now.has(sent) ? now[sent] : saved_by(op).front();
}

std::vector<at::Tensor> Verbs::saved_by(const schedule::Exchanged& op) {
  const store::ActivationStore::Key key{op.block, op.segment, op.microbatch};
  std::vector<at::Tensor> saved = activations_.take(key);
  activations_.keep(key, saved);
  return saved;
}

std::array<std::int64_t, 3> Verbs::head_sections(const schedule::Exchanged& op) const {
  const std::int64_t q = model_.held.heads * model_.held.head_dim;
  const std::int64_t kv = (model::exchanged_width(model_, op.block, op.segment) - q) / 2;
  return {q, kv, kv};
}

at::Tensor Verbs::packed(const schedule::Exchanged& op, at::Tensor from) {
  const schedule::ExchangeRow& row = schedule::row_of(op.kind);
  const int ranks = link(row.group, row.lane).size();
  if (sums(row.collective)) from = widened(from);
  switch (row.pack) {
    case schedule::Layout::columns: return last_columns(from, model::gathered_width(model_.held));
    case schedule::Layout::by_run:
      return reordered(from.contiguous(), Order::by_rank, ranks, microbatch(op.microbatch).batch);
    case schedule::Layout::by_head: return split_heads(from.contiguous(), ranks, head_sections(op));
    default: return from;
  }
}

at::Tensor Verbs::moved(const schedule::ExchangeRow& row, at::Tensor sent) const {
  comm::Collectives& group = link(row.group, row.lane);
  const DType type = row.element == model::Element::compute ? store_.compute() : DType::fp32;
  const int ranks = group.size();
  switch (row.collective) {
    case schedule::Collective::all_gather: {
      at::Tensor whole = at::empty({ranks * sent.size(0), sent.size(1)}, sent.options());
      group.all_gather(sent.const_data_ptr(), whole.mutable_data_ptr(), sent.numel(), type);
      return whole;
    }
    case schedule::Collective::reduce_scatter: {
      at::Tensor sum = at::empty({sent.size(0) / ranks, sent.size(1)}, sent.options());
      group.reduce_scatter(sent.const_data_ptr<float>(), sum.mutable_data_ptr<float>(), sum.numel(), type, false);
      return sum;
    }
    case schedule::Collective::all_reduce:
      group.all_reduce(sent.mutable_data_ptr<float>(), sent.numel(), type);
      return sent;
    case schedule::Collective::all_to_all: {
      at::Tensor received = at::empty_like(sent);
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), sent.numel() / ranks);
      group.all_to_all(sent.const_data_ptr(), counts, received.mutable_data_ptr(), counts, type);
      return received;
    }
  }
  throw BugError("an exchange is by a collective");
}

at::Tensor Verbs::unpacked(const schedule::Exchanged& op, at::Tensor arrived) {
  const schedule::ExchangeRow& row = schedule::row_of(op.kind);
  const int ranks = link(row.group, row.lane).size();
  if (row.unpack == schedule::Layout::by_run)
    return reordered(arrived, Order::in_sequence, ranks, microbatch(op.microbatch).batch);
  if (row.unpack == schedule::Layout::by_head) return join_heads(arrived, ranks, head_sections(op));
  return arrived;
}

void Verbs::deliver(const schedule::Exchanged& op, const Frame& now, at::Tensor result) {
  switch (op.kind) {
    case schedule::Exchange::scatter_sequence:
    case schedule::Exchange::all_reduce_activation: return put_sum(op, now, result);
    case schedule::Exchange::all_reduce_statistics:  // in place
      if (op.phase == schedule::Phase::backward)
        with_kept(op.block, op.segment, op.microbatch, [&](nn::Kept& kept) {
          nn::Routing none;
          (void)with_frame(op, {.stage = op.segment, .spec = &stage_of(op), .parameters = {}, .gradients = {}},
                           op.phase, kept, nn::Mode::train, none,
                           [](const nn::StageCode& code, nn::StageFrame& f) { code.finish_backward(f); });
        });
      return;
    case schedule::Exchange::gather_vocabulary: return finish_vocabulary(op, now, result);
    case schedule::Exchange::scatter_keys:
      now[keys].reset();
      return put_last_columns(plus_residual(result, {}, now[projected].scalar_type()), now[projected]);
    default: now[schedule::delivered_by(op, stage_of(op))] = std::move(result);
  }
}

void Verbs::put_sum(const schedule::Exchanged& op, const Frame& now, const at::Tensor& sum) {
  const schedule::TensorRef into = schedule::delivered_by(op, stage_of(op));
  at::Tensor& sent = now[schedule::sent_by(op, stage_of(op))];
  const at::ScalarType type = sent.scalar_type();
  if (into.id != residual) {
    sent = plus_residual(sum, {}, type);
    return;
  }
  now[into] = plus_residual(sum, now[into], type);
  sent.reset();
}

void Verbs::finish_vocabulary(const schedule::Exchanged& op, const Frame& now, const at::Tensor& of_ranks) {
  at::Tensor& softmax = now[vocabulary];
  const at::Tensor gathered = of_ranks.view({-1, softmax.size(0), softmax.size(1)});
  if (options_.mode == nn::Mode::infer) {
    state_.result.logits = gathered.transpose(0, 1).flatten(1).slice(1, 0, model_.sizes.vocab);
    return softmax.reset();
  }
  softmax = at::empty({gathered.size(1), 2}, gathered.options());
  const nn::Microbatch& m = microbatch(op.microbatch);
  if (gathered.is_cuda()) {
    if (!state_.losses.head_on_device.defined())
      state_.losses.head_on_device = at::zeros({2}, gathered.options().dtype(at::kDouble));
    kernels::combine_statistics(gathered, m.targets, softmax, m.z_loss, state_.losses.head_on_device);
  } else {
    state_.losses.head += kernels::combine_statistics(gathered, m.targets, softmax, m.z_loss);
  }
  if (options_.mode == nn::Mode::evaluate) finish_evaluation(op.microbatch);
}

}  // namespace trireme::executor

// SPDX-License-Identifier: Apache-2.0
// The verbs of the context axis, and the end of attention over what they exchange. Plain loops, since the lane's thread
// has no team.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "executor/arithmetic.hpp"
#include "executor/verbs.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/model/context.hpp"

namespace trireme::executor {
namespace {

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

/// Rows of all ranks' tokens as the ranks hold them, one behind the other, and as the sequences have them.
enum class Order { by_rank, in_sequence };

/// On a GPU: the rows in the other order. ranks: of the context axis. A rank's first runs begin the sequences, and its
/// second ones end them, the last rank's first.
at::Tensor reordered(const at::Tensor& rows, Order to, std::int64_t ranks, std::int64_t sequences) {
  at::Tensor out = at::empty_like(rows);
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
  return out;
}

/// On a GPU: calls move(whole, part) with views [tokens, ranks, width / ranks] of each section: as it lies in all heads
/// of some tokens, and in what `each_head_part` calls `part`.
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

/// Copies `count` rows of a contiguous matrix.
void copy_rows(const at::Tensor& from, std::int64_t first, const at::Tensor& to, std::int64_t into,
               std::int64_t count) {
  const std::int64_t row = from.size(1) * static_cast<std::int64_t>(from.element_size());
  std::memcpy(static_cast<std::byte*>(to.mutable_data_ptr()) + into * row,
              static_cast<const std::byte*>(from.const_data_ptr()) + first * row,
              static_cast<std::size_t>(count * row));
}

}  // namespace

void Verbs::end_attention(const model::Stage& stage, const StageOperands& operands, const nn::Layer& layer,
                          Microbatch m, nn::Mode mode, at::Tensor& stream, nn::Saved& saved) {
  InFlight& now = in_flight(m);
  const bool adds = model::adds_to_stream(stage);
  const at::Tensor residual = adds ? stream : at::Tensor();
  at::Tensor out = layer.output ? layer.output->forward(now.branch, residual, operands.parameters, mode, saved.tensors)
                                : layer.attend->forward(now.branch, now.keys, residual, operands.parameters,
                                                        microbatch(m), mode, saved.tensors);
  now.keys.reset();
  now.branch.reset();
  (adds ? stream : now.branch) = std::move(out);
}

void Verbs::run(const schedule::GatherKeys& op) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const device::ChargeTo charge(device::Category::workspace);
  comm::Collectives& context = link(mesh::Group::context, schedule::Lane::context);
  InFlight& now = in_flight(op.microbatch);
  const std::int64_t width = 2 * model_.held.kv_heads * model_.held.head_dim;
  at::Tensor qkv = now.branch;
  if (op.phase == schedule::Phase::again) {
    const store::ActivationStore::Key key{op.block, op.stage, op.microbatch};
    std::vector<at::Tensor> saved = activations_.take(key);
    qkv = saved.front();
    activations_.keep(key, std::move(saved));
  }
  const at::Tensor mine = last_columns(qkv, width);
  const at::Tensor gathered = at::empty({context.size() * mine.size(0), width}, mine.options());
  context.all_gather(mine.const_data_ptr(), gathered.mutable_data_ptr(), mine.numel(), store_.compute());
  const nn::Microbatch& m = microbatch(op.microbatch);
  if (gathered.is_cuda()) {
    now.keys = reordered(gathered, Order::in_sequence, context.size(), m.batch);
    return;
  }
  now.keys = at::empty({gathered.size(0), width}, mine.options());
  each_run(context.size(), m.batch, m.seq_len * context.size(),
           [&](int rank, std::int64_t held, std::int64_t whole, std::int64_t count) {
             copy_rows(gathered, rank * mine.size(0) + held, now.keys, whole, count);
           });
}

void Verbs::run(const schedule::ExchangeHeads& op) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const device::ChargeTo charge(device::Category::workspace);
  comm::Collectives& context = link(mesh::Group::context, schedule::Lane::context);
  InFlight& now = in_flight(op.microbatch);
  const nn::Microbatch& m = microbatch(op.microbatch);
  const int ranks = context.size();
  const std::int64_t tokens = m.batch * m.seq_len, width = model::exchanged_width(model_, op.block, op.stage);
  const std::int64_t q = model_.held.heads * model_.held.head_dim, kv = (width - q) / 2;
  const std::array<std::int64_t, 3> sections{q, kv, kv};
  const at::Tensor from = now.branch.contiguous();
  const auto element = static_cast<std::int64_t>(from.element_size());
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), tokens * (width / ranks));
  // By rank: of heads, the tokens here; or of tokens, the heads here.
  at::Tensor out = at::empty({ranks * tokens, width / ranks}, from.options());
  const at::Tensor in = at::empty_like(out);
  if (from.is_cuda()) {
    if (op.to_heads)
      each_section(from, out, ranks, sections,
                   [](const at::Tensor& whole, const at::Tensor& part) { part.copy_(whole); });
    else
      out = reordered(from, Order::by_rank, ranks, m.batch);
    context.all_to_all(out.const_data_ptr(), counts, in.mutable_data_ptr(), counts, store_.compute());
    if (op.to_heads) {
      now.branch = reordered(in, Order::in_sequence, ranks, m.batch);
      return;
    }
    now.branch = at::empty({tokens, width}, from.options());
    return each_section(now.branch, in, ranks, sections,
                        [](const at::Tensor& whole, const at::Tensor& part) { whole.copy_(part); });
  }
  const auto* source = static_cast<const std::byte*>(from.const_data_ptr());
  if (op.to_heads)
    each_head_part(ranks, tokens, sections, element, [&](std::int64_t whole, std::int64_t part, std::int64_t count) {
      std::memcpy(static_cast<std::byte*>(out.mutable_data_ptr()) + part, source + whole,
                  static_cast<std::size_t>(count));
    });
  else
    each_run(ranks, m.batch, m.seq_len * ranks,
             [&](int rank, std::int64_t held, std::int64_t whole, std::int64_t count) {
               copy_rows(from, whole, out, rank * tokens + held, count);
             });
  context.all_to_all(out.const_data_ptr(), counts, in.mutable_data_ptr(), counts, store_.compute());
  at::Tensor to =
      at::empty({op.to_heads ? ranks * tokens : tokens, op.to_heads ? width / ranks : width}, from.options());
  if (op.to_heads)
    each_run(ranks, m.batch, m.seq_len * ranks,
             [&](int rank, std::int64_t held, std::int64_t whole, std::int64_t count) {
               copy_rows(in, rank * tokens + held, to, whole, count);
             });
  else
    each_head_part(ranks, tokens, sections, element, [&](std::int64_t whole, std::int64_t part, std::int64_t count) {
      std::memcpy(static_cast<std::byte*>(to.mutable_data_ptr()) + whole,
                  static_cast<const std::byte*>(in.const_data_ptr()) + part, static_cast<std::size_t>(count));
    });
  now.branch = std::move(to);
}

void Verbs::run(const schedule::ScatterKeys& op) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const device::ChargeTo charge(device::Category::workspace);
  comm::Collectives& context = link(mesh::Group::context, schedule::Lane::context);
  InFlight& now = in_flight(op.microbatch);
  const nn::Microbatch& m = microbatch(op.microbatch);
  const std::int64_t mine = m.batch * m.seq_len, width = now.keys.size(1);
  const at::Tensor wide = widened(now.keys);
  at::Tensor by_rank;
  if (wide.is_cuda()) {
    by_rank = reordered(wide, Order::by_rank, context.size(), m.batch);
  } else {
    by_rank = at::empty({wide.size(0), width}, wide.options());
    each_run(context.size(), m.batch, m.seq_len * context.size(),
             [&](int rank, std::int64_t held, std::int64_t whole, std::int64_t count) {
               copy_rows(wide, whole, by_rank, rank * mine + held, count);
             });
  }
  const at::Tensor sum = at::empty({mine, width}, wide.options());
  context.reduce_scatter(by_rank.const_data_ptr<float>(), sum.mutable_data_ptr<float>(), sum.numel(), store_.compute(),
                         false);
  now.keys.reset();
  const at::Tensor rounded = plus_residual(sum, {}, now.branch.scalar_type());
  if (rounded.is_cuda()) {
    now.branch.narrow(1, now.branch.size(1) - width, width).copy_(rounded);
    return;
  }
  const std::int64_t stride = now.branch.size(1), element = static_cast<std::int64_t>(rounded.element_size());
  auto* to = static_cast<std::byte*>(now.branch.mutable_data_ptr()) + (stride - width) * element;
  const auto* from = static_cast<const std::byte*>(rounded.const_data_ptr());
  for (std::int64_t row = 0; row < mine; ++row)
    std::memcpy(to + row * stride * element, from + row * width * element, static_cast<std::size_t>(width * element));
}

}  // namespace trireme::executor

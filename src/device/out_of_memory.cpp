// SPDX-License-Identifier: Apache-2.0
#include "device/out_of_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "trireme/base/text_table.hpp"
#include "trireme/device/history.hpp"

namespace trireme::device {
namespace {

struct Row {
  Account account;
  Bytes bytes;
};

/// Memory in use, and the refused request, largest first.
std::vector<Row> rows_of(Account asking, Bytes asked, const MemoryUse& use) {
  std::vector<Row> rows;
  for (const Space space : {Space::device, Space::host}) {
    for (const Category category : all_categories()) {
      const Account account{category, space};
      Bytes bytes = use[space].current[category];
      if (account == asking) bytes += asked;
      if (bytes.value > 0) rows.push_back({account, bytes});
    }
  }
  std::ranges::stable_sort(rows, std::ranges::greater{}, &Row::bytes);
  return rows;
}

std::string_view remedy(Category largest) {
  switch (largest) {
    case Category::parameters_sharded:
    case Category::gradients_sharded:
    case Category::optimizer: return "run on more ranks or nodes, so that mesh.shard is larger and each holds less";
    case Category::parameters_unsharded: return "set sync.reshard_after_forward = true, or lower sync.prefetch_bytes";
    case Category::parameters_resharded: return "set sync.reshard_after_forward = true, which keeps no copy in groups";
    case Category::gradients_unsharded:
      return "set sync.policy = \"immediate\", which frees a block's gradients after each microbatch";
    case Category::activations:
    case Category::workspace:
      return "lower batch.micro (batch.global may stay: there is more accumulation), then data.seq_len";
    case Category::communication: return "lower sync.prefetch_bytes, or run fewer ranks on a node";
    case Category::data: return "lower data.prefetch_batches";
    case Category::other: return "lower batch.micro, or run fewer ranks on a node";
  }
  return "lower batch.micro";
}

std::string op_text(const OutOfMemoryHelp& help, int op) {
  return op == no_op || !help.op_text ? "" : help.op_text(op);
}

}  // namespace

std::string out_of_memory_text(Account account, Bytes asked, const MemoryUse& use, const OutOfMemoryHelp& help,
                               Bytes budget) {
  const std::vector<Row> rows = rows_of(account, asked, use);
  TextTable table({"category", "memory", "bytes", "of which requested now", "highest during"});
  for (const Row& row : rows) {
    const Account& a = row.account;
    table.add({std::string(to_text(a.category)), std::string(to_text(a.space)), trireme::to_text(row.bytes),
               a == account ? trireme::to_text(asked) : "", op_text(help, use[a.space].peak_ops[a.category])});
  }
  const std::string now = op_text(help, current_operation().op);
  const std::string bound =
      budget.value > 0 ? fmt::format(", and memory.budget allows {}", trireme::to_text(budget)) : "";
  return fmt::format(
      "out of memory{}: no {} for {} on top of {} reserved ({} of it in use){}. What to do: {}{}.\n\n{}{}",
      now.empty() ? "" : fmt::format(" in `{}`", now), trireme::to_text(asked), to_text(account.category),
      trireme::to_text(use.reserved), trireme::to_text(use.allocated), bound,
      remedy(rows.empty() ? account.category : rows.front().account.category),
      help.advice ? ", or one of the changes in the table" : "", table.str(),
      help.advice ? fmt::format("\n{}", help.advice()) : "");
}

}  // namespace trireme::device

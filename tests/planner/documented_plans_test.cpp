// SPDX-License-Identifier: Apache-2.0
//
// Plans every row of the table in docs/parallelism.md: memory and speed of Llama 3 8B, 70B and 405B on 8 to 16,384
// H100, with their axes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/text.hpp"
#include "trireme/config/load.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/time/machine.hpp"
#include "trireme/planner/time/predict.hpp"

namespace trireme::planner {
namespace {

const std::string document = TRIREME_SOURCE_DIR "/docs/parallelism.md";
constexpr std::string_view head = "| model | GPUs | `--set` | GiB a rank | MFU | bubble |";

/// A row of the document: the planned run, and the documented results.
struct Row {
  std::string model, gpus, settings, gib, mfu, bubble;

  [[nodiscard]] std::string line() const {
    return fmt::format("| {} | {} | {} | {} | {} | {} |", model, gpus, settings, gib, mfu, bubble);
  }
  /// The words between backquotes.
  [[nodiscard]] std::vector<std::string> overrides() const {
    std::vector<std::string> words;
    for (std::size_t begin = settings.find('`'); begin != std::string::npos; begin = settings.find('`', begin + 1)) {
      const std::size_t end = settings.find('`', begin + 1);
      words.push_back(settings.substr(begin + 1, end - begin - 1));
      begin = end;
    }
    return words;
  }
  [[nodiscard]] int ranks() const {
    std::string digits = gpus;
    std::erase(digits, ',');
    return std::stoi(digits);
  }
};

std::string text_of_document() {
  std::ifstream file(document);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Row> rows_of(const std::string& text) {
  std::vector<Row> rows;
  std::istringstream lines(text.substr(std::min(text.find(head), text.size())));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);  // below the head
  while (std::getline(lines, line) && line.starts_with("| ")) {
    std::vector<std::string> cells;
    std::istringstream in(line.substr(1));
    for (std::string cell; std::getline(in, cell, '|');) cells.emplace_back(trim(cell));
    cells.resize(6);
    rows.push_back({cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]});
  }
  return rows;
}

/// The same row with the planned results.
Row planned(Row row, const Machine& machine) {
  std::string name = row.model;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  config::RunConfig config =
      config::load_run_file(TRIREME_SOURCE_DIR "/inputs/llama3-" + name + ".toml", row.overrides());
  config.device.type = config::DeviceType::cuda;
  const Prediction p = predict(config, row.ranks(), machine, {.percentiles = false, .few_layers = true});
  const Memory memory = predict_memory(config, p.mesh);
  EXPECT_LT(memory.total(), machine.memory) << row.line();
  row.gib = fmt::format("{:.1f}", static_cast<double>(memory.total().value) / (std::int64_t{1} << 30));
  row.mfu = fmt::format("{:.0f}%", 100 * p.mfu);
  row.bubble = "";
  if (p.mesh.pipeline == 1) return row;
  const auto bubble = schedule::unit_bubble(pipeline_of(config, p.mesh.accumulation));
  if (bubble) row.bubble = fmt::format("{:.1f}%", 100 * *bubble);
  return row;
}

TEST(DocumentedPlans, EqualThePlan) {
  std::string text = text_of_document();
  const std::vector<Row> rows = rows_of(text);
  ASSERT_GT(rows.size(), 15U);
  const Machine machine = load_machine("h100");
  std::set<std::string> models;
  int fewest = 1 << 20, most = 0;
  for (const Row& row : rows) {
    SCOPED_TRACE(row.line());
    const Row now = planned(row, machine);
    models.insert(row.model);
    fewest = std::min(fewest, row.ranks());
    most = std::max(most, row.ranks());
    if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) {
      text.replace(text.find(row.line()), row.line().size(), now.line());
      continue;
    }
    EXPECT_NEAR(std::stod(now.gib), std::stod(row.gib), 0.5) << now.line();
    EXPECT_NEAR(std::stod(now.mfu), std::stod(row.mfu), 2) << now.line();
    EXPECT_EQ(now.bubble, row.bubble) << now.line();
  }
  EXPECT_EQ(models, (std::set<std::string>{"405B", "70B", "8B"}));
  EXPECT_EQ(fewest, 8);
  EXPECT_EQ(most, 16384);
  if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) std::ofstream(document) << text;
}

}  // namespace
}  // namespace trireme::planner

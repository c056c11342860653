// SPDX-License-Identifier: Apache-2.0
#include "train/open_tokens.hpp"

#include <sstream>
#include <string>
#include <vector>

#include "trireme/mpi/collective_try.hpp"

namespace trireme::train {
namespace {

/// A line for each: three digits and the path, which ends with a zero byte, as it may hold anything else.
std::string encode(const std::vector<data::TokenPlace>& places) {
  std::string text;
  for (const data::TokenPlace& place : places) {
    text += place.indexed ? '1' : '0';
    text += place.masked ? '1' : '0';
    text += place.described ? '1' : '0';
    text += place.path + '\0';
  }
  return text;
}

std::vector<data::TokenPlace> decode(const std::string& text) {
  std::vector<data::TokenPlace> places;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line, '\0');)
    places.push_back(
        {.path = line.substr(3), .indexed = line[0] == '1', .masked = line[1] == '1', .described = line[2] == '1'});
  return places;
}

}  // namespace

data::Datasets open_tokens(const mpi::Communicator& world, const config::Data& data, data::Split split,
                           std::int64_t vocab_size) {
  const auto find_all = [&] {
    std::vector<data::TokenPlace> found;
    for (const config::TokenSource& source : data::sources_of(data, split))
      found.push_back(data::find_token_file(source.path, data.format));
    return encode(found);
  };
  const std::vector<data::TokenPlace> places = decode(mpi::on_first_rank(world, "find the token files", find_all));
  std::vector<data::PackingPlan> plans;
  if (data.packing == config::Packing::best_fit)
    plans = data::decode_plans(mpi::on_first_rank(world, "plan the packing of the token files", [&] {
      return data::encode(
          data::plan_packing(data::sources_of(data, split), data.format, data.seq_len, vocab_size, places));
    }));
  data::Datasets datasets;
  mpi::collective_try(world, "open the token files",
                      [&] { datasets = data::open_split(data, split, vocab_size, places, plans); });
  return datasets;
}

}  // namespace trireme::train

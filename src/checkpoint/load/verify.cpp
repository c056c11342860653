// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "checkpoint/save/shard_file.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/base/units.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/load.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Files that are not in the manifest.
void find_strangers(const std::string& path, const Manifest& manifest, std::vector<std::string>& found) {
  std::set<std::string> known{path + "/COMMIT", index_path(path), path + "/shards"};
  for (const SavedFile& file : manifest.files) known.insert(path + "/" + file.path);
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    if (!known.contains(it->path().string()))
      found.push_back(fmt::format("{}: does not belong to the checkpoint", it->path().string()));
  if (error) io::cannot_read(path, "be read", error.value());
}

void verify_file(const std::string& path, const SavedFile& saved, Reader& reader, std::vector<std::string>& found) {
  const std::string name = path + "/" + saved.path;
  std::vector<float> values;
  for (const SavedDataset& dataset : saved.datasets)
    for (const SavedSlice& slice : dataset.slices)
      for (std::int64_t c = 0; c < slice.chunks(); ++c) {
        values.resize(static_cast<std::size_t>(slice.chunk(c).size()));
        try {
          reader.read_chunk(saved, dataset, slice, c, values);
        } catch (const CheckpointError& error) {
          found.emplace_back(error.what());
        }
      }
  if (hash_rest(io::File::open(name), saved) != saved.rest)
    found.push_back(fmt::format("{}: is damaged outside of its datasets' values (HDF5's own data, or padding)", name));
}

std::string saved_by(const Manifest& manifest) {
  for (const auto& [key, value] : manifest.versions)
    if (key == "trireme") return value;
  return "?";
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += fmt::format("{}{}", text.empty() ? "" : " x ", size);
  return text;
}

}  // namespace

std::vector<std::string> verify(const std::string& path) {
  std::vector<std::string> found;
  try {
    const Manifest manifest = parse_manifest(index_path(path), open_manifest_text(path));
    find_strangers(path, manifest, found);
    Reader reader(path, manifest);
    for (const SavedFile& file : manifest.files) {
      std::error_code error;
      const std::string name = path + "/" + file.path;
      const auto size = fs::file_size(name, error);
      if (error)
        found.push_back(fmt::format("{}: {}", name, error.message()));
      else if (size != static_cast<std::uintmax_t>(file.bytes))
        found.push_back(fmt::format("{}: has {} bytes instead of {}", name, size, file.bytes));
      else
        verify_file(path, file, reader, found);
    }
  } catch (const CheckpointError& error) {
    found.emplace_back(error.what());
  }
  return found;
}

std::string describe(const std::string& path) {
  const Manifest manifest = open_checkpoint(path);
  const State& state = manifest.state;
  std::int64_t bytes = 0;
  std::int64_t elements = 0;
  std::vector<std::set<int>> owners(manifest.parameters.size());
  for (const SavedFile& file : manifest.files) {
    bytes += file.bytes;
    for (const SavedDataset& dataset : file.datasets)
      for (const SavedSlice& slice : dataset.slices)
        owners[static_cast<std::size_t>(slice.parameter)].insert(file.dp_rank);
  }
  TextTable table({"parameter", "shape", "elements", "in files dp-"});
  for (std::size_t p = 0; p < manifest.parameters.size(); ++p) {
    const SavedParameter& parameter = manifest.parameters[p];
    elements += parameter.elements();
    const std::set<int>& ranks = owners[p];
    table.add({printable(parameter.name), shape_text(parameter.shape), std::to_string(parameter.elements()),
               ranks.size() == 1 ? std::to_string(*ranks.begin())
                                 : fmt::format("{} of {}..{}", ranks.size(), *ranks.begin(), *ranks.rbegin())});
  }
  std::string text = fmt::format(
      "{}\nstep {}, {} updates, {} skipped, {} samples, {} tokens, learning rate {}\n"
      "saved on {} by trireme {}{}\n{} parameters; with {}'s moments {} in {} file{}{}\n\n",
      path, state.step, state.updates, state.skipped, state.samples, state.tokens, state.learning_rate,
      manifest.mesh.text(), saved_by(manifest), state.run_id.empty() ? "" : ", run " + state.run_id, elements,
      manifest.rules.empty() ? "AdamW" : "Muon", to_text(Bytes{bytes}), manifest.files.size(),
      manifest.files.size() == 1 ? "" : "s",
      manifest.ranks_per_file == 1 ? "" : fmt::format(", one for {} dp ranks", manifest.ranks_per_file));
  for (const auto& [key, value] : manifest.model) text += fmt::format("{} = {}\n", printable(key), printable(value));
  return text + "\n" + table.str();
}

}  // namespace trireme::checkpoint

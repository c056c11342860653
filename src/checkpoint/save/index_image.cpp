// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/index_image.hpp"

#include <fmt/format.h>

#include <limits>
#include <vector>

#include "checkpoint/rectangles.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::size_t longest_attribute = 60'000;  // HDF5 keeps attributes of less than 64 KiB in the object header

/// Location of a slice of a parameter.
struct Place {
  const SavedFile* file;
  const SavedDataset* dataset;
  const SavedSlice* slice;
};

/// Maps `place` into the virtual dataset that `creation` describes, of rows of `columns`.
void map_slice(const h5::Properties& creation, const h5::Space& whole, bool matrix, std::int64_t columns,
               const Place& place) {
  const auto source_size = static_cast<hsize_t>(place.dataset->elements);
  auto source_at = static_cast<hsize_t>(place.slice->offset);
  for (const Rectangle& piece : rectangles(place.slice->hyperslab, columns)) {
    const hsize_t start[] = {static_cast<hsize_t>(piece.row), static_cast<hsize_t>(piece.column)};
    const hsize_t count[] = {static_cast<hsize_t>(piece.rows), static_cast<hsize_t>(piece.columns)};
    const int skip = matrix ? 0 : 1;  // a vector is one row
    h5::ImageBuilder::check(
        H5Sselect_hyperslab(whole.id(), H5S_SELECT_SET, start + skip, nullptr, count + skip, nullptr), "map a slice");
    const auto source_count = static_cast<hsize_t>(piece.size());
    const h5::Space source(h5::ImageBuilder::check(H5Screate_simple(1, &source_size, nullptr), "map a slice"));
    h5::ImageBuilder::check(
        H5Sselect_hyperslab(source.id(), H5S_SELECT_SET, &source_at, nullptr, &source_count, nullptr), "map a slice");
    h5::ImageBuilder::check(H5Pset_virtual(creation.id(), whole.id(), place.file->path.c_str(),
                                           ("/" + place.dataset->name).c_str(), source.id()),
                            "map a slice");
    source_at += source_count;
  }
}

void write_virtual(h5::ImageBuilder& file, Quantity quantity, const SavedParameter& parameter,
                   const std::vector<Place>& places) {
  const std::vector<hsize_t> shape(parameter.shape.begin(), parameter.shape.end());
  const bool matrix = shape.size() > 1;
  const h5::Properties creation(h5::ImageBuilder::check(H5Pcreate(H5P_DATASET_CREATE), "describe a dataset"));
  const float missing = std::numeric_limits<float>::quiet_NaN();
  h5::ImageBuilder::check(H5Pset_fill_value(creation.id(), H5T_NATIVE_FLOAT, &missing), "set the fill value");
  const h5::Space whole(h5::ImageBuilder::check(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                                                "describe a dataset"));
  for (const Place& place : places) map_slice(creation, whole, matrix, columns_of(parameter), place);
  file.virtual_floats(fmt::format("{}/{}", to_text(quantity), parameter.name), shape, creation);
}

void write_attributes(h5::ImageBuilder& file, const Manifest& manifest) {
  const State& state = manifest.state;
  file.attribute("format", std::string("trireme checkpoint"));
  file.attribute("format_version", std::int64_t{format_version(manifest)});
  file.attribute("step", state.step);
  file.attribute("updates", state.updates);
  file.attribute("tokens", state.tokens);
  file.attribute("samples", state.samples);
  file.attribute("seed", static_cast<std::int64_t>(state.seed));
  file.attribute("learning_rate", state.learning_rate);
  file.attribute("mesh", manifest.mesh.text());
  for (const auto& [key, value] : manifest.model) file.attribute(key, value);
  for (const auto& [key, value] : manifest.versions) file.attribute("version." + key, value);
  if (state.run_file.size() < longest_attribute) file.attribute("run_file", state.run_file);
}

void write_datasets(h5::ImageBuilder& file, const Manifest& manifest) {
  std::vector<std::vector<std::vector<Place>>> places(all_quantities.size(),
                                                      std::vector<std::vector<Place>>(manifest.parameters.size()));
  for (const SavedFile& source : manifest.files)
    for (const SavedDataset& dataset : source.datasets)
      for (const SavedSlice& slice : dataset.slices)
        places[static_cast<std::size_t>(dataset.quantity)][static_cast<std::size_t>(slice.parameter)].push_back(
            {&source, &dataset, &slice});
  for (const Quantity quantity : all_quantities) {
    file.group(std::string(to_text(quantity)));
    for (std::size_t p = 0; p < manifest.parameters.size(); ++p)
      if (has(manifest, quantity, p))
        write_virtual(file, quantity, manifest.parameters[p], places[static_cast<std::size_t>(quantity)][p]);
  }
}

}  // namespace

h5::Image index_image(const Manifest& manifest, const std::string& json) {
  const h5::Hdf5Lock lock;
  h5::ImageBuilder builder;
  write_attributes(builder, manifest);
  write_datasets(builder, manifest);
  builder.bytes("manifest", json);
  return builder.finish();
}

}  // namespace trireme::checkpoint

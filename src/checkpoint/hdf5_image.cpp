// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hdf5_image.hpp"

#include <fmt/format.h>

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>  // HDF5 1.14: the interface for drivers is no longer part of hdf5.h
#endif

#include <algorithm>
#include <new>
#include <utility>

#include "base/io/disk_space.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/data/text/xxh3.hpp"

namespace trireme::checkpoint::h5 {
namespace {

/// An Image opened by HDF5.
struct OpenImage : H5FD_t {
  std::shared_ptr<Image> image;
  haddr_t allocated = 0;
};

OpenImage& opened_image(H5FD_t* file) { return *static_cast<OpenImage*>(file); }
const OpenImage& opened_image(const H5FD_t* file) { return *static_cast<const OpenImage*>(file); }

H5FD_t* open_image(const char* /*name*/, unsigned /*flags*/, hid_t access, haddr_t /*largest*/) {
  const void* const file = H5Pget_driver_info(access);
  if (file == nullptr) return nullptr;
  auto* opened = new (std::nothrow) OpenImage();
  if (opened != nullptr) opened->image = **static_cast<const std::shared_ptr<Image>* const*>(file);
  return opened;
}

herr_t close_image(H5FD_t* file) {
  delete &opened_image(file);
  return 0;
}

/// Those of the driver of plain files (sec2), for the same layout.
herr_t image_features(const H5FD_t* /*file*/, unsigned long* features) {
  if (features != nullptr)
    *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
                H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t image_allocated(const H5FD_t* file, H5FD_mem_t /*kind*/) { return opened_image(file).allocated; }
haddr_t image_end(const H5FD_t* file, H5FD_mem_t /*kind*/) { return opened_image(file).image->size(); }

herr_t allocate_image(H5FD_t* file, H5FD_mem_t /*kind*/, haddr_t bytes) {
  opened_image(file).allocated = bytes;
  return 0;
}

herr_t read_image(H5FD_t* file, H5FD_mem_t /*kind*/, hid_t /*transfer*/, haddr_t at, std::size_t size, void* bytes) {
  opened_image(file).image->read(at, {static_cast<std::byte*>(bytes), size});
  return 0;
}

herr_t write_image(H5FD_t* file, H5FD_mem_t /*kind*/, hid_t /*transfer*/, haddr_t at, std::size_t size,
                   const void* bytes) {
  opened_image(file).image->write(at, {static_cast<const std::byte*>(bytes), size});
  return 0;
}

herr_t truncate_image(H5FD_t* file, hid_t /*transfer*/, hbool_t /*closing*/) {
  opened_image(file).image->resize(opened_image(file).allocated);
  return 0;
}

H5FD_class_t image_driver() {
  H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
  driver.version = H5FD_CLASS_VERSION;
  driver.value = 511;  // of the numbers that HDF5 leaves to drivers that no other driver uses
#endif
  driver.name = "trireme_memory";
  driver.maxaddr = HADDR_MAX;
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(void*);
  driver.open = open_image;
  driver.close = close_image;
  driver.query = image_features;
  driver.get_eoa = image_allocated;
  driver.set_eoa = allocate_image;
  driver.get_eof = image_end;
  driver.read = read_image;
  driver.write = write_image;
  driver.truncate = truncate_image;
  constexpr H5FD_mem_t lists[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(lists), std::end(lists), std::begin(driver.fl_map));
  return driver;
}

/// Maps files opened with the access properties `access` to `image`, for any name. Returns false when HDF5 refuses.
bool keep_in_memory(hid_t access, const std::shared_ptr<Image>& image) {
  static const H5FD_class_t driver = image_driver();
  static const hid_t registered = H5FDregister(&driver);
  const std::shared_ptr<Image>* const info = &image;
  return registered >= 0 && H5Pset_driver(access, registered, static_cast<const void*>(&info)) >= 0;
}

Properties page_aligned() {
  Properties access(H5Pcreate(H5P_FILE_ACCESS));
  // A file system without locks (ENOLCK, EOPNOTSUPP) would fail every save, and no other process uses the file: it is
  // in a directory of this save, which the run's lock protects. HDF5_USE_FILE_LOCKING overrides this.
  H5Pset_file_locking(access.id(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true);
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  constexpr hsize_t page = 4096;
  H5Pset_alignment(access.id(), page, page);
  H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG);
  return access;
}

/// Without times: the same values make the same file.
Properties untimed(hid_t kind) {
  Properties creation(H5Pcreate(kind));
  H5Pset_obj_track_times(creation.id(), false);
  return creation;
}

}  // namespace

void Image::write(std::uint64_t at, std::span<const std::byte> bytes) noexcept {
  size_ = std::max<std::uint64_t>(size_, at + bytes.size());
  while (!bytes.empty()) {
    const std::size_t offset = at % page;
    const std::size_t count = std::min(page - offset, bytes.size());
    try {
      std::copy_n(bytes.begin(), count, pages_[at / page].begin() + static_cast<std::ptrdiff_t>(offset));
    } catch (const std::bad_alloc&) {
      incomplete_ = true;
      return;
    }
    at += count;
    bytes = bytes.subspan(count);
  }
}

void Image::read(std::uint64_t at, std::span<std::byte> bytes) const noexcept {
  while (!bytes.empty()) {
    const std::size_t offset = at % page;
    const std::size_t count = std::min(page - offset, bytes.size());
    const auto found = pages_.find(at / page);
    if (found == pages_.end())
      std::fill_n(bytes.begin(), count, std::byte{});
    else
      std::copy_n(found->second.begin() + static_cast<std::ptrdiff_t>(offset), count, bytes.begin());
    at += count;
    bytes = bytes.subspan(count);
  }
}

std::uint64_t Image::hash() const {
  data::Xxh3 hash;
  const auto add = [&](std::uint64_t number) { hash.add(std::as_bytes(std::span(&number, 1))); };
  add(size_);
  for (const auto& [number, bytes] : pages_) {
    add(number);
    hash.add(bytes);
  }
  return hash.value();
}

void Image::write_file(const std::string& path) const {
  if (incomplete_) throw WriteError(fmt::format("{}: there is not enough memory to lay it out", path));
  constexpr std::size_t at_once = 1 << 20;
  io::require_file_size(path, static_cast<std::int64_t>(size_));
  io::File file = io::File::create(path);
  file.resize(static_cast<std::int64_t>(size_));
  std::vector<std::byte> bytes;
  for (auto it = pages_.begin(); it != pages_.end() && it->first * page < size_;) {
    const std::uint64_t first = it->first;
    bytes.clear();
    for (; it != pages_.end() && it->first == first + bytes.size() / page && bytes.size() < at_once; ++it)
      bytes.insert(bytes.end(), it->second.begin(), it->second.end());
    bytes.resize(std::min<std::uint64_t>(bytes.size(), size_ - first * page));
    file.write_at(static_cast<std::int64_t>(first * page), bytes);
  }
}

ImageBuilder::ImageBuilder() : image_(std::make_shared<Image>()) {
  const Properties access = page_aligned();
  const Properties creation = untimed(H5P_FILE_CREATE);
  if (!keep_in_memory(access.id(), image_)) (void)check(-1, "lay the file out in memory");
  file_ = File(check(H5Fcreate("image", H5F_ACC_TRUNC, creation.id(), access.id()), "create the file"));
}

hid_t ImageBuilder::check(hid_t id, std::string_view what) {
  if (id < 0)
    throw WriteError(fmt::format("cannot {} of a file in memory: HDF5 reports: {}; check the memory of this node", what,
                                 last_reason()));
  return id;
}

void ImageBuilder::group(const std::string& name) {
  const Properties creation = untimed(H5P_GROUP_CREATE);
  const Group group(check(H5Gcreate2(file_.id(), name.c_str(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
                          fmt::format("create group {}", name)));
}

std::int64_t ImageBuilder::reserve_floats(const std::string& name, std::int64_t elements) {
  const Properties creation = untimed(H5P_DATASET_CREATE);
  check(H5Pset_layout(creation.id(), H5D_CONTIGUOUS), "describe a dataset");
  check(H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY), "describe a dataset");
  check(H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER), "describe a dataset");
  const auto size = static_cast<hsize_t>(elements);
  const Space space(check(H5Screate_simple(1, &size, nullptr), "describe a dataset"));
  const Dataset dataset(
      check(H5Dcreate2(file_.id(), name.c_str(), H5T_IEEE_F32LE, space.id(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
            fmt::format("create dataset {}", name)));
  const haddr_t offset = H5Dget_offset(dataset.id());
  if (offset == HADDR_UNDEF) (void)check(-1, fmt::format("place dataset {}", name));
  return static_cast<std::int64_t>(offset);
}

void ImageBuilder::bytes(const std::string& name, std::string_view text) {
  const hsize_t size = text.size();
  const Space space(check(H5Screate_simple(1, &size, nullptr), "describe a dataset"));
  const Dataset dataset(
      check(H5Dcreate2(file_.id(), name.c_str(), H5T_STD_U8LE, space.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
            fmt::format("create dataset {}", name)));
  check(H5Dwrite(dataset.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()),
        fmt::format("write dataset {}", name));
}

void ImageBuilder::virtual_floats(const std::string& name, std::span<const hsize_t> shape, const Properties& creation) {
  const Space space(check(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                          fmt::format("describe dataset {}", name)));
  const Dataset dataset(
      check(H5Dcreate2(file_.id(), name.c_str(), H5T_IEEE_F32LE, space.id(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
            fmt::format("create virtual dataset {}", name)));
}

void ImageBuilder::scalar(const std::string& name, hid_t type, const void* value) {
  const std::string what = fmt::format("write attribute {}", name);
  const Space space(check(H5Screate(H5S_SCALAR), what));
  const Attribute attribute(
      check(H5Acreate2(file_.id(), name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT), what));
  check(H5Awrite(attribute.id(), type, value), what);
}

void ImageBuilder::attribute(const std::string& name, const std::string& text) {
  const Type type(check(H5Tcopy(H5T_C_S1), "describe a text"));
  check(H5Tset_size(type.id(), H5T_VARIABLE), "describe a text");
  check(H5Tset_cset(type.id(), H5T_CSET_UTF8), "describe a text");
  const char* value = text.c_str();
  scalar(name, type.id(), &value);
}

void ImageBuilder::attribute(const std::string& name, std::int64_t value) { scalar(name, H5T_NATIVE_INT64, &value); }
void ImageBuilder::attribute(const std::string& name, double value) { scalar(name, H5T_NATIVE_DOUBLE, &value); }

Image ImageBuilder::finish() {
  check(H5Fflush(file_.id(), H5F_SCOPE_GLOBAL), "flush the metadata");
  check(file_.close() ? 0 : -1, "close the metadata");
  return std::move(*image_);
}

}  // namespace trireme::checkpoint::h5

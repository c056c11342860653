// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/memory_driver.hpp"

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>  // HDF5 1.14: what writes drivers is no longer part of hdf5.h
#endif

#include <algorithm>
#include <new>

namespace trireme::checkpoint::h5 {
namespace {

/// A MemoryFile as HDF5 sees it. It may outlive the writer: HDF5 keeps a file that it could not close.
struct OpenMemoryFile : H5FD_t {
  std::shared_ptr<MemoryFile> file;
  haddr_t allocated = 0;
};

OpenMemoryFile& ours(H5FD_t* file) { return *static_cast<OpenMemoryFile*>(file); }
const OpenMemoryFile& ours(const H5FD_t* file) { return *static_cast<const OpenMemoryFile*>(file); }

H5FD_t* open_memory(const char* /*name*/, unsigned /*flags*/, hid_t access, haddr_t /*largest*/) {
  const void* const file = H5Pget_driver_info(access);
  if (file == nullptr) return nullptr;
  auto* opened = new (std::nothrow) OpenMemoryFile();
  if (opened != nullptr) opened->file = **static_cast<const std::shared_ptr<MemoryFile>* const*>(file);
  return opened;
}

herr_t close_memory(H5FD_t* file) {
  delete &ours(file);
  return 0;
}

/// As the driver of plain files (sec2), so that the files are laid out alike.
herr_t memory_features(const H5FD_t* /*file*/, unsigned long* features) {
  if (features != nullptr)
    *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
                H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t memory_allocated(const H5FD_t* file, H5FD_mem_t /*kind*/) { return ours(file).allocated; }
haddr_t memory_end(const H5FD_t* file, H5FD_mem_t /*kind*/) { return ours(file).file->size(); }

herr_t allocate_memory(H5FD_t* file, H5FD_mem_t /*kind*/, haddr_t bytes) {
  ours(file).allocated = bytes;
  return 0;
}

herr_t read_memory(H5FD_t* file, H5FD_mem_t /*kind*/, hid_t /*transfer*/, haddr_t at, std::size_t size, void* bytes) {
  ours(file).file->read(at, {static_cast<std::byte*>(bytes), size});
  return 0;
}

herr_t write_memory(H5FD_t* file, H5FD_mem_t /*kind*/, hid_t /*transfer*/, haddr_t at, std::size_t size,
                    const void* bytes) {
  ours(file).file->write(at, {static_cast<const std::byte*>(bytes), size});
  return 0;
}

herr_t truncate_memory(H5FD_t* file, hid_t /*transfer*/, hbool_t /*closing*/) {
  ours(file).file->resize(ours(file).allocated);
  return 0;
}

H5FD_class_t memory_driver() {
  H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
  driver.version = H5FD_CLASS_VERSION;
  driver.value = 511;  // of the numbers that HDF5 leaves to drivers that no other driver uses
#endif
  driver.name = "trireme_memory";
  driver.maxaddr = HADDR_MAX;
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(void*);
  driver.open = open_memory;
  driver.close = close_memory;
  driver.query = memory_features;
  driver.get_eoa = memory_allocated;
  driver.set_eoa = allocate_memory;
  driver.get_eof = memory_end;
  driver.read = read_memory;
  driver.write = write_memory;
  driver.truncate = truncate_memory;
  constexpr H5FD_mem_t lists[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(lists), std::end(lists), std::begin(driver.fl_map));
  return driver;
}

}  // namespace

bool keep_in_memory(hid_t access, const std::shared_ptr<MemoryFile>& file) {
  static const H5FD_class_t driver = memory_driver();
  static const hid_t registered = H5FDregister(&driver);
  const std::shared_ptr<MemoryFile>* const info = &file;
  return registered >= 0 && H5Pset_driver(access, registered, static_cast<const void*>(&info)) >= 0;
}

}  // namespace trireme::checkpoint::h5

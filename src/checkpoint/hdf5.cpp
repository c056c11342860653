// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hdf5.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/hdf5_version.hpp"

namespace trireme::checkpoint::h5 {
namespace {

constexpr hsize_t page = 4096;
constexpr const char* no_such_file = "/dev/null/image";  // the name of a file in memory must not be one on the disk

/// HDF5's clean-up at exit would run into files that it could not write, and crash; MPI calls it at its end as well.
std::mutex& mutex() {
  static std::mutex only;
  static const bool prepared = H5dont_atexit() >= 0;
  (void)prepared;
  return only;
}

herr_t keep_last(unsigned /*depth*/, const H5E_error2_t* error, void* reason) {
  if (error->desc != nullptr) *static_cast<std::string*>(reason) = error->desc;
  return 0;
}

herr_t find_lack_of_memory(unsigned /*depth*/, const H5E_error2_t* error, void* found) {
  if (error->maj_num == H5E_RESOURCE) *static_cast<bool*>(found) = true;
  return 0;
}

/// Whether the last call failed for lack of memory.
bool no_memory() {
  bool found = false;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, find_lack_of_memory, &found);
  return found;
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(mutex()) {
  static const bool checked = (check_hdf5(), true);  // HDF5's own check, which ends the process, is silenced
  (void)checked;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5Eclear2(H5E_DEFAULT);
}

std::string last_reason() {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_last, &reason);
  std::replace(reason.begin(), reason.end(), '\n', ' ');  // of ctime(), in the middle of why a write failed
  return reason.empty() ? "no reason given" : reason;
}

std::string read_bytes(std::string_view image, const std::string& path, const std::string& name) {
  const auto check = [&](hid_t id, std::string_view what) {
    if (id >= 0) return id;
    if (no_memory()) throw std::bad_alloc();
    throw CheckpointError(fmt::format("{}, dataset {}: cannot {}: HDF5 reports: {}; use another checkpoint", path, name,
                                      what, last_reason()));
  };
  const Properties access(check(H5Pcreate(H5P_FILE_ACCESS), "open the file"));
  check(H5Pset_fapl_core(access.id(), page, /*backing_store=*/false), "open the file");
  check(H5Pset_file_image(access.id(), const_cast<char*>(image.data()), image.size()), "open the file");
  const File file(check(H5Fopen(no_such_file, H5F_ACC_RDONLY, access.id()), "open the file"));
  const auto refuse = [&](std::string_view what) {
    throw CheckpointError(fmt::format(
        "{}, dataset {}: {}, but a checkpoint's data lie in its own files; use another checkpoint", path, name, what));
  };
  H5L_info_t link{};
  if (H5Lget_info(file.id(), name.c_str(), &link, H5P_DEFAULT) >= 0 && link.type != H5L_TYPE_HARD)
    refuse(link.type == H5L_TYPE_SOFT ? "is a soft link" : "is a link to another file");
  const Dataset dataset(check(H5Dopen2(file.id(), name.c_str(), H5P_DEFAULT), "open it"));
  const Properties creation(check(H5Dget_create_plist(dataset.id()), "ask for its layout"));
  if (H5Pget_external_count(creation.id()) != 0) refuse("is stored in another file");
  if (H5Pget_layout(creation.id()) == H5D_VIRTUAL) refuse("is a virtual dataset");
  const Space space(check(H5Dget_space(dataset.id()), "ask for its size"));
  const hssize_t size = H5Sget_simple_extent_npoints(space.id());
  if (size < 0 || static_cast<hsize_t>(size) > image.size())
    throw CheckpointError(
        fmt::format("{}, dataset {}: claims {} bytes, but the file has only {}; use another checkpoint", path, name,
                    size, image.size()));
  std::string text(static_cast<std::size_t>(size), '\0');
  check(H5Dread(dataset.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()), "read it");
  return text;
}

}  // namespace trireme::checkpoint::h5

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hdf5.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "checkpoint/memory_driver.hpp"
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

Properties page_aligned() {
  Properties access(H5Pcreate(H5P_FILE_ACCESS));
  // A file system that cannot lock (ENOLCK, EOPNOTSUPP) would refuse every save, and no other process knows the file:
  // it is in a directory of this save, which the run's lock protects. HDF5_USE_FILE_LOCKING overrules this.
  H5Pset_file_locking(access.id(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true);
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110);
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

Writer::Writer(std::string path) : path_(std::move(path)), image_(std::make_shared<MemoryFile>()) {
  const Properties access = page_aligned();
  const Properties creation = untimed(H5P_FILE_CREATE);
  if (!keep_in_memory(access.id(), image_)) (void)check(-1, "lay the file out in memory");
  file_ = File(check(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, creation.id(), access.id()), "create the file"));
}

hid_t Writer::check(hid_t id, std::string_view what) const {
  if (id < 0)
    throw WriteError(fmt::format("{}: cannot {}: HDF5 reports: {}; check free space, quota and permissions", path_,
                                 what, last_reason()));
  return id;
}

void Writer::check_status(herr_t status, std::string_view what) const { (void)check(status, what); }

void Writer::group(const std::string& name) {
  const Properties creation = untimed(H5P_GROUP_CREATE);
  const Group group(check(H5Gcreate2(file_.id(), name.c_str(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
                          fmt::format("create group {}", name)));
}

haddr_t Writer::reserved_floats(const std::string& name, hsize_t elements) {
  const Properties creation = untimed(H5P_DATASET_CREATE);
  check_status(H5Pset_layout(creation.id(), H5D_CONTIGUOUS), "describe a dataset");
  check_status(H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY), "describe a dataset");
  check_status(H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER), "describe a dataset");
  const Space space(check(H5Screate_simple(1, &elements, nullptr), "describe a dataset"));
  const Dataset dataset(
      check(H5Dcreate2(file_.id(), name.c_str(), H5T_IEEE_F32LE, space.id(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
            fmt::format("create dataset {}", name)));
  const haddr_t offset = H5Dget_offset(dataset.id());
  if (offset == HADDR_UNDEF) (void)check(-1, fmt::format("place dataset {}", name));
  return offset;
}

void Writer::bytes(const std::string& name, std::string_view text) {
  const hsize_t size = text.size();
  const Space space(check(H5Screate_simple(1, &size, nullptr), "describe a dataset"));
  const Dataset dataset(
      check(H5Dcreate2(file_.id(), name.c_str(), H5T_STD_U8LE, space.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
            fmt::format("create dataset {}", name)));
  check_status(H5Dwrite(dataset.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()),
               fmt::format("write dataset {}", name));
}

void Writer::virtual_floats(const std::string& name, std::span<const hsize_t> shape, const Properties& creation) {
  const Space space(check(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                          fmt::format("describe dataset {}", name)));
  const Dataset dataset(
      check(H5Dcreate2(file_.id(), name.c_str(), H5T_IEEE_F32LE, space.id(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
            fmt::format("create virtual dataset {}", name)));
}

void Writer::scalar(const std::string& name, hid_t type, const void* value) {
  const std::string what = fmt::format("write attribute {}", name);
  const Space space(check(H5Screate(H5S_SCALAR), what));
  const Attribute attribute(
      check(H5Acreate2(file_.id(), name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT), what));
  check_status(H5Awrite(attribute.id(), type, value), what);
}

void Writer::attribute(const std::string& name, const std::string& text) {
  const Type type(check(H5Tcopy(H5T_C_S1), "describe a text"));
  check_status(H5Tset_size(type.id(), H5T_VARIABLE), "describe a text");
  check_status(H5Tset_cset(type.id(), H5T_CSET_UTF8), "describe a text");
  const char* value = text.c_str();
  scalar(name, type.id(), &value);
}

void Writer::attribute(const std::string& name, std::int64_t value) { scalar(name, H5T_NATIVE_INT64, &value); }
void Writer::attribute(const std::string& name, double value) { scalar(name, H5T_NATIVE_DOUBLE, &value); }

void Writer::close() {
  const herr_t flushed = H5Fflush(file_.id(), H5F_SCOPE_GLOBAL);
  const std::string reason = flushed < 0 ? last_reason() : "";
  const bool closed = file_.close();
  if (flushed < 0)
    throw WriteError(
        fmt::format("{}: cannot flush the file: HDF5 reports: {}; check free space and quota", path_, reason));
  if (!closed) (void)check(-1, "close the file");
  image_->copy_to(path_);
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

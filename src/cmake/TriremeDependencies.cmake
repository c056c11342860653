# SPDX-License-Identifier: Apache-2.0
#
# Finds every library, for the build and for who builds against an installed Trireme. What a site or Spack provides is
# found first; the cache that jobs/setup.sh fills comes last.

if(NOT TRIREME_CACHE)
  if(DEFINED ENV{TRIREME_CACHE})
    set(TRIREME_CACHE $ENV{TRIREME_CACHE})
  else()
    set(TRIREME_CACHE $ENV{HOME}/.cache/trireme)
  endif()
endif()
set(TRIREME_CACHE ${TRIREME_CACHE} CACHE PATH "What jobs/setup.sh fetched and built")

find_package(fmt 9 REQUIRED)
find_package(tomlplusplus 3 REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
if(TRIREME_VALUES_ONLY)
  find_package(CLI11 2.1 QUIET) # with both: `trireme plan`
  find_package(spdlog 1.10 QUIET)
  return()
endif()
find_package(CLI11 2.1 REQUIRED)
find_package(spdlog 1.10 REQUIRED)

set(MPI_CXX_SKIP_MPICXX TRUE)
set(MPI_DETERMINE_LIBRARY_VERSION TRUE)
find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
if(TRIREME_CUDA)
  # A site's NCCL is found first, then the toolkit's, then the one that jobs/setup.sh fetched.
  find_package(CUDAToolkit 13.0 REQUIRED)
  # Before, at::addmm with out_dtype took an accumulator of its operands' type only: no bf16 gradient could be accumulated in fp32.
  find_package(Libtorch 2.11 REQUIRED COMPONENTS cuda)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT}/include ${CUDAToolkit_INCLUDE_DIRS} ${Libtorch_INCLUDE_DIR}/../../nvidia/nccl/include)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2
    HINTS ${NCCL_ROOT}/lib ${CUDAToolkit_LIBRARY_DIR} ${Libtorch_INCLUDE_DIR}/../../nvidia/nccl/lib)
  mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
  if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
    message(FATAL_ERROR "NCCL was not found. Run jobs/setup.sh --cuda, or give its prefix with -DNCCL_ROOT=...")
  endif()
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h NCCL_VERSION REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+$")
  list(TRANSFORM NCCL_VERSION REPLACE "^.* " "")
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
  if(NCCL_VERSION VERSION_LESS 2.23) # ncclCommInitRankScalable
    message(FATAL_ERROR "NCCL ${NCCL_VERSION} in ${NCCL_INCLUDE_DIR} is too old: 2.23 or later. Give another with -DNCCL_ROOT=...")
  endif()
  message(STATUS "Found NCCL: ${NCCL_LIBRARY} (found version \"${NCCL_VERSION}\")")
  if(NOT TARGET Trireme::nccl)
    add_library(Trireme::nccl UNKNOWN IMPORTED GLOBAL)
    set_target_properties(Trireme::nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
  endif()
  # libtorch's, too: one library in the process.
  find_library(CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 HINTS ${CUDAToolkit_LIBRARY_DIR} ${Libtorch_INCLUDE_DIR}/../../nvidia/cu13/lib)
  mark_as_advanced(CUBLASLT_LIBRARY)
  if(NOT CUBLASLT_LIBRARY)
    message(FATAL_ERROR "cuBLASLt was not found: it comes with the CUDA toolkit and with PyTorch's CUDA packages. Give it with -DCUBLASLT_LIBRARY=...")
  endif()
  if(NOT TARGET Trireme::cublaslt)
    add_library(Trireme::cublaslt UNKNOWN IMPORTED GLOBAL)
    set_target_properties(Trireme::cublaslt PROPERTIES IMPORTED_LOCATION ${CUBLASLT_LIBRARY})
  endif()
else()
  find_package(Libtorch 2.8 REQUIRED)
endif()

find_package(Kokkos 4.5 CONFIG QUIET)
if(NOT Kokkos_FOUND)
  file(GLOB _kokkos_cached LIST_DIRECTORIES true ${TRIREME_CACHE}/kokkos-*)
  list(SORT _kokkos_cached COMPARE NATURAL ORDER DESCENDING)
  find_package(Kokkos 4.5 CONFIG QUIET NO_DEFAULT_PATH PATHS ${_kokkos_cached})
endif()
if(NOT Kokkos_FOUND)
  message(FATAL_ERROR "Kokkos 4.5 or later was not found. Run jobs/setup.sh, or give its prefix with -DKokkos_ROOT=...")
endif()
if(NOT "OPENMP" IN_LIST Kokkos_DEVICES)
  message(FATAL_ERROR "Kokkos in ${Kokkos_DIR} was built without OpenMP (devices: ${Kokkos_DEVICES}). Trireme's host kernels need it.")
endif()
message(STATUS "Found Kokkos: ${Kokkos_DIR} (found version \"${Kokkos_VERSION}\")")

# Serial or parallel: its MPI half is never called. A parallel one first, whose MPI is then the same as ours.
set(HDF5_PREFER_PARALLEL TRUE)
find_package(HDF5 REQUIRED COMPONENTS C)
if(HDF5_VERSION VERSION_LESS 1.10.7)
  message(FATAL_ERROR "HDF5 ${HDF5_VERSION} in ${HDF5_INCLUDE_DIRS} is older than 1.10.7, the first that may do without file locks. Give another with -DHDF5_ROOT=...")
endif()
# An imported target: an installed Trireme names it, and finds it again with this file.
add_library(Trireme::hdf5 INTERFACE IMPORTED GLOBAL)
target_include_directories(Trireme::hdf5 SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
target_compile_definitions(Trireme::hdf5 INTERFACE ${HDF5_DEFINITIONS})
target_link_libraries(Trireme::hdf5 INTERFACE ${HDF5_C_LIBRARIES})
if(HDF5_IS_PARALLEL)
  target_link_libraries(Trireme::hdf5 INTERFACE MPI::MPI_CXX)  # its header includes MPI's
endif()

# Trireme::<name> for a library without a CMake package: one header, one library.
function(trireme_find_library name header library)
  find_path(${name}_INCLUDE_DIR ${header} REQUIRED)
  find_library(${name}_LIBRARY ${library} REQUIRED)
  mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
  add_library(Trireme::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(Trireme::${name} PROPERTIES
    IMPORTED_LOCATION ${${name}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${${name}_INCLUDE_DIR})
endfunction()
trireme_find_library(xxhash xxhash.h xxhash)
trireme_find_library(sentencepiece sentencepiece_processor.h sentencepiece)
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(SENTENCEPIECE QUIET sentencepiece)  # its headers do not have the version
endif()
trireme_find_library(pcre2 pcre2.h pcre2-8)
trireme_find_library(utf8proc utf8proc.h utf8proc)
trireme_find_library(zlib zlib.h z)
trireme_find_library(zstd zstd.h zstd)

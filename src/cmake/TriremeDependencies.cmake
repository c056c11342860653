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
find_package(CLI11 2.1 REQUIRED)
find_package(spdlog 1.10 REQUIRED)

set(MPI_CXX_SKIP_MPICXX TRUE)
set(MPI_DETERMINE_LIBRARY_VERSION TRUE)
find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
find_package(Libtorch 2.8 REQUIRED)

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

set(HDF5_PREFER_PARALLEL TRUE)
find_package(HDF5 REQUIRED COMPONENTS C)
if(NOT HDF5_IS_PARALLEL)
  message(FATAL_ERROR "HDF5 ${HDF5_VERSION} in ${HDF5_INCLUDE_DIRS} was built without MPI. Give a parallel one with -DHDF5_ROOT=...")
endif()
# An imported target: an installed Trireme names it, and finds it again with this file.
add_library(Trireme::hdf5 INTERFACE IMPORTED GLOBAL)
target_include_directories(Trireme::hdf5 SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
target_compile_definitions(Trireme::hdf5 INTERFACE ${HDF5_DEFINITIONS})
target_link_libraries(Trireme::hdf5 INTERFACE ${HDF5_C_LIBRARIES} MPI::MPI_CXX)

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

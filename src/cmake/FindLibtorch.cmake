# SPDX-License-Identifier: Apache-2.0
#
# Finds the C++ library of PyTorch without its own CMake package, which insists on a CUDA toolkit where the library was
# built for CUDA. Looks, in this order, in Libtorch_ROOT, CMAKE_PREFIX_PATH as variable and environment (a PyTorch
# installation, its `torch` folder or its share/cmake) and the cache that jobs/setup.sh fills.
#
# Target: Libtorch::Libtorch (libtorch_cpu, libc10, headers, OpenMP); with the component `cuda` also Libtorch::cuda
# (libtorch_cuda, libc10_cuda, and the CUDA runtime, which find_package(CUDAToolkit) must have found before).
# Variables: Libtorch_FOUND, Libtorch_VERSION, Libtorch_INCLUDE_DIR.

set(_libtorch_hints "")
set(_libtorch_environment "$ENV{CMAKE_PREFIX_PATH}")
string(REPLACE ":" ";" _libtorch_environment "${_libtorch_environment}")
foreach(_prefix IN LISTS Libtorch_ROOT CMAKE_PREFIX_PATH _libtorch_environment)
  list(APPEND _libtorch_hints ${_prefix} ${_prefix}/torch ${_prefix}/../..)
endforeach()
file(GLOB _libtorch_cached LIST_DIRECTORIES true ${TRIREME_CACHE}/libtorch-*/torch)
list(SORT _libtorch_cached COMPARE NATURAL ORDER DESCENDING)
list(APPEND _libtorch_hints ${_libtorch_cached})

find_path(Libtorch_INCLUDE_DIR ATen/core/TensorBody.h HINTS ${_libtorch_hints} PATH_SUFFIXES include)
get_filename_component(_libtorch_home "${Libtorch_INCLUDE_DIR}" DIRECTORY)
# Only the library in the tree of these headers: two versions would link and then crash.
find_library(Libtorch_CPU_LIBRARY torch_cpu HINTS ${_libtorch_home}/lib ${_libtorch_home}/lib64 NO_DEFAULT_PATH)
find_library(Libtorch_C10_LIBRARY c10 HINTS ${_libtorch_home}/lib ${_libtorch_home}/lib64 NO_DEFAULT_PATH)
find_library(Libtorch_CUDA_LIBRARY torch_cuda HINTS ${_libtorch_home}/lib ${_libtorch_home}/lib64 NO_DEFAULT_PATH)
find_library(Libtorch_C10_CUDA_LIBRARY c10_cuda HINTS ${_libtorch_home}/lib ${_libtorch_home}/lib64 NO_DEFAULT_PATH)
mark_as_advanced(Libtorch_INCLUDE_DIR Libtorch_CPU_LIBRARY Libtorch_C10_LIBRARY Libtorch_CUDA_LIBRARY Libtorch_C10_CUDA_LIBRARY)
set(Libtorch_cuda_FOUND FALSE)
if(Libtorch_CUDA_LIBRARY AND Libtorch_C10_CUDA_LIBRARY)
  set(Libtorch_cuda_FOUND TRUE)
endif()

set(Libtorch_VERSION "")
if(EXISTS ${Libtorch_INCLUDE_DIR}/torch/headeronly/version.h)
  set(_libtorch_version_file ${Libtorch_INCLUDE_DIR}/torch/headeronly/version.h)
else()
  set(_libtorch_version_file ${Libtorch_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h)
endif()
if(EXISTS ${_libtorch_version_file})
  foreach(_part MAJOR MINOR PATCH)
    file(STRINGS ${_libtorch_version_file} _line REGEX "^#define TORCH_VERSION_${_part} [0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+$" _number "${_line}")
    list(APPEND Libtorch_VERSION ${_number})
  endforeach()
  list(JOIN Libtorch_VERSION "." Libtorch_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_CPU_LIBRARY Libtorch_C10_LIBRARY Libtorch_INCLUDE_DIR
  VERSION_VAR Libtorch_VERSION
  HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE "Run jobs/setup.sh (for GPUs: jobs/setup.sh --cuda), or give a PyTorch installation with -DLibtorch_ROOT=<its torch folder>.")

if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  # One OpenMP runtime in the process: where libtorch brings its own libgomp, all of us link that one.
  find_library(Libtorch_GOMP_LIBRARY NAMES libgomp.so.1 HINTS ${_libtorch_home}/lib NO_DEFAULT_PATH)
  mark_as_advanced(Libtorch_GOMP_LIBRARY)
  if(Libtorch_GOMP_LIBRARY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    set(OpenMP_gomp_LIBRARY ${Libtorch_GOMP_LIBRARY} CACHE FILEPATH "The OpenMP runtime that libtorch brings")
  endif()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  add_library(Libtorch::c10 UNKNOWN IMPORTED)
  set_target_properties(Libtorch::c10 PROPERTIES IMPORTED_LOCATION ${Libtorch_C10_LIBRARY})
  add_library(Libtorch::Libtorch UNKNOWN IMPORTED)
  # -idirafter: the wheel brings its own fmt, dnnl and protobuf headers, which must never win over the system's.
  # OpenMP: without it at::parallel_for in our own code silently runs on one thread.
  set_target_properties(Libtorch::Libtorch PROPERTIES
    IMPORTED_LOCATION ${Libtorch_CPU_LIBRARY}
    INTERFACE_COMPILE_OPTIONS
      "$<$<COMPILE_LANGUAGE:C,CXX>:SHELL:-idirafter ${Libtorch_INCLUDE_DIR} -idirafter ${Libtorch_INCLUDE_DIR}/torch/csrc/api/include>;$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-idirafter,${Libtorch_INCLUDE_DIR},-idirafter,${Libtorch_INCLUDE_DIR}/torch/csrc/api/include>"
    INTERFACE_LINK_LIBRARIES "Libtorch::c10;OpenMP::OpenMP_CXX")
endif()

if(Libtorch_cuda_FOUND AND TARGET CUDA::cudart AND NOT TARGET Libtorch::cuda)
  add_library(Libtorch::c10_cuda UNKNOWN IMPORTED)
  set_target_properties(Libtorch::c10_cuda PROPERTIES IMPORTED_LOCATION ${Libtorch_C10_CUDA_LIBRARY})
  add_library(Libtorch::cuda INTERFACE IMPORTED)
  # No symbol of libtorch_cuda is referenced: loading it registers the operators.
  set_target_properties(Libtorch::cuda PROPERTIES INTERFACE_LINK_LIBRARIES
    "-Wl,--no-as-needed,${Libtorch_CUDA_LIBRARY},--as-needed;Libtorch::c10_cuda;Libtorch::Libtorch;CUDA::cudart")
endif()

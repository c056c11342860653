# SPDX-License-Identifier: Apache-2.0
#
# The language, the flags and the compiler cache. `trireme_compile_settings(target)` gives a target of ours the flags.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# A layer's objects do not wait for the layers that it sees: a broken file stops its own layer only.
set(CMAKE_OPTIMIZE_DEPENDENCIES ON)
# The program finds the libraries of the cache or of the site, built or installed.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
endif()

find_program(TRIREME_CCACHE ccache)
mark_as_advanced(TRIREME_CCACHE)
if(TRIREME_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TRIREME_CCACHE})
endif()

# For GPUs: real code for A100 (80) and H100, H200 (90), and PTX, which later ones compile when they load it.
if(TRIREME_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS $ENV{CUDA_HOME}/bin PATHS /usr/local/cuda/bin)
    if(NOT CMAKE_CUDA_COMPILER)
      message(FATAL_ERROR "TRIREME_CUDA=ON needs a CUDA toolkit: nvcc is neither in PATH nor in $CUDA_HOME nor in /usr/local/cuda. "
        "Give it with -DCMAKE_CUDA_COMPILER=..., or configure with -DTRIREME_CUDA=OFF.")
    endif()
  endif()
  if(NOT CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared) # one runtime in the process: libtorch's
  if(TRIREME_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${TRIREME_CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake before 3.26 lacks the C++20 option of nvcc 12
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
endif()

# -fno-math-errno: errno after sqrt keeps loops from vectorizing (AdamW runs 3 times slower with it).
set(trireme_flags -fno-math-errno -Wall -Wextra)
if(TRIREME_ARCH)
  list(APPEND trireme_flags -march=${TRIREME_ARCH})
endif()
if(TRIREME_WERROR)
  list(APPEND trireme_flags -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 finds faults in the standard library's own std::string::operator+ and std::vector::insert once they are inlined.
  list(APPEND trireme_flags -Wno-restrict)
  list(APPEND trireme_flags -Wno-missing-field-initializers) # designated initialisers leave the rest at its default
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND trireme_flags -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
endif()

# nvcc: the same for the host's half, and what has to do with kernels. Its own stubs are full of unused parameters. Code for devices
# is not compressed: tests/kernels/device_code_test.py reads it.
list(TRANSFORM trireme_flags PREPEND -Xcompiler= OUTPUT_VARIABLE trireme_cuda_flags)
list(APPEND trireme_cuda_flags -Xcompiler=-Wno-unused-parameter --expt-relaxed-constexpr --extended-lambda -lineinfo --no-compress)
if(TRIREME_WERROR)
  list(APPEND trireme_cuda_flags --Werror=all-warnings)
endif()

# Several sources in one compilation, which reads the headers of the libraries once for all of them. Sources with
# instructions of some CPUs only, those of builds without CUDA and what tests replace stay apart: all other objects are equal in both.
function(trireme_unity target)
  get_target_property(sources ${target} SOURCES)
  set(apart ${sources})
  list(FILTER apart INCLUDE REGEX "(avx512|/no_cuda[^/]*|/cuda/launch)\\.cpp$")
  list(REMOVE_ITEM sources ${apart})
  set_source_files_properties(${apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # Batches of equal size: with one core each they end together.
  list(LENGTH sources count)
  if(count GREATER 1)
    math(EXPR batches "(${count} + 15) / 16")
    math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  endif()
endfunction()

function(trireme_compile_settings target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:${trireme_flags}>" "$<$<COMPILE_LANGUAGE:CUDA>:${trireme_cuda_flags}>")
  if(TRIREME_UNITY)
    trireme_unity(${target})
  endif()
endfunction()

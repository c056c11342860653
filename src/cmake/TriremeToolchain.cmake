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

function(trireme_compile_settings target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE ${trireme_flags})
endfunction()

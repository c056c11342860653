# SPDX-License-Identifier: Apache-2.0
#
# One static library per layer, made of src/<layer>/*.cpp, linked to the layers above it in the list.
#
# Backends by link: a build for GPUs (TRIREME_CUDA) takes src/<layer>/cuda/*.cpp and *.cu, every other one
# src/<layer>/no_cuda*.cpp, which define the same functions. Everything else is the same object either way. So that the
# twins stay whole where only builds for GPUs are tested, such a build also links a program out of the no_cuda files.

set_property(GLOBAL PROPERTY trireme_value_layers "")
set_property(GLOBAL PROPERTY trireme_machine_layers "")
set_property(GLOBAL PROPERTY trireme_no_cuda_sources "")

# trireme_layer(<layer> [MACHINE] [PUBLIC <libraries>] [PRIVATE <libraries>] [CUDA <libraries of a build for GPUs>])
# The target trireme_<layer>. It sees every layer declared before it. Without sources it is an INTERFACE library.
function(trireme_layer layer)
  cmake_parse_arguments(PARSE_ARGV 1 arg "MACHINE" "" "PUBLIC;PRIVATE;CUDA")
  get_property(values GLOBAL PROPERTY trireme_value_layers)
  get_property(machine GLOBAL PROPERTY trireme_machine_layers)
  set(sees ${values} ${machine})
  list(TRANSFORM sees PREPEND trireme_)

  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${layer}/*.cpp)
  list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/src/${layer}/main.cpp)
  if(TRIREME_CUDA)
    set(twins ${sources})
    list(FILTER twins INCLUDE REGEX "/no_cuda[^/]*\\.cpp$")
    list(FILTER sources EXCLUDE REGEX "/no_cuda[^/]*\\.cpp$")
    set_property(GLOBAL APPEND PROPERTY trireme_no_cuda_sources ${twins})
    file(GLOB cuda CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${layer}/cuda/*.cpp ${PROJECT_SOURCE_DIR}/src/${layer}/cuda/*.cu)
    list(APPEND sources ${cuda})
    # These alone see CUDA's headers: all others compile as they do without it, and are the same object in a cache.
    set_property(SOURCE ${cuda} APPEND PROPERTY INCLUDE_DIRECTORIES ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE_DIR})
  endif()
  if(sources)
    add_library(trireme_${layer} STATIC ${sources})
    trireme_compile_settings(trireme_${layer})
    target_include_directories(trireme_${layer} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(trireme_${layer} PUBLIC ${sees} ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
    if(TRIREME_CUDA)
      list(TRANSFORM arg_CUDA REPLACE "(.+)" "$<LINK_ONLY:\\1>")
      target_link_libraries(trireme_${layer} INTERFACE ${arg_CUDA})
    endif()
  else()
    add_library(trireme_${layer} INTERFACE)
    target_include_directories(trireme_${layer} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
    target_link_libraries(trireme_${layer} INTERFACE ${sees} ${arg_PUBLIC})
  endif()

  if(arg_MACHINE)
    set_property(GLOBAL APPEND PROPERTY trireme_machine_layers ${layer})
  else()
    set_property(GLOBAL APPEND PROPERTY trireme_value_layers ${layer})
  endif()
endfunction()

# In a build for GPUs: the program once more, out of the same objects, with the twins in place of what needs CUDA. A
# function that they lack stays undefined, or brings in its CUDA half beside them: neither links.
function(trireme_without_cuda)
  get_property(twins GLOBAL PROPERTY trireme_no_cuda_sources)
  if(NOT twins)
    return()
  endif()
  add_executable(trireme_without_cuda ${PROJECT_SOURCE_DIR}/src/cli/main.cpp ${twins})
  trireme_compile_settings(trireme_without_cuda)
  target_include_directories(trireme_without_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(trireme_without_cuda PRIVATE Trireme::trireme)
endfunction()

# The generated source behind trireme::build_info(): versions when configuring, the git hash at every build.
function(trireme_build_info)
  # "Open MPI v4.1.4, package: ..." -> "Open MPI v4.1.4"; the standard's version where the library does not say.
  string(REGEX MATCH "^[^,\n]+" mpi "${MPI_CXX_LIBRARY_VERSION_STRING}")
  if(NOT mpi)
    set(mpi ${MPI_CXX_VERSION})
  endif()
  set(libraries "")
  set(cuda "")
  if(TRIREME_CUDA)
    set(cuda "CUDA=${CUDAToolkit_VERSION}" "NCCL=${NCCL_VERSION}")
  endif()
  foreach(pair "libtorch=${Libtorch_VERSION}" ${cuda} "Kokkos=${Kokkos_VERSION}" "MPI=${mpi}" "HDF5=${HDF5_VERSION}"
               "fmt=${fmt_VERSION}" "toml++=${tomlplusplus_VERSION}" "nlohmann-json=${nlohmann_json_VERSION}"
               "CLI11=${CLI11_VERSION}" "spdlog=${spdlog_VERSION}")
    string(REPLACE "=" ";" pair "${pair}")
    list(GET pair 0 name)
    list(GET pair 1 version)
    string(APPEND libraries "    {\"${name}\", \"${version}\"},\n")
  endforeach()
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  list(JOIN trireme_flags " " flags)
  string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}} ${flags}" flags)
  set(generated ${PROJECT_BINARY_DIR}/generated)
  configure_file(${PROJECT_SOURCE_DIR}/src/cmake/build_info.cpp.in ${generated}/build_info.cpp @ONLY)
  add_custom_target(trireme_git_hash
    COMMAND ${CMAKE_COMMAND} -D source=${PROJECT_SOURCE_DIR} -D output=${generated}/git_hash.hpp
            -P ${PROJECT_SOURCE_DIR}/src/cmake/git_hash.cmake
    BYPRODUCTS ${generated}/git_hash.hpp
    COMMENT "")
  target_sources(trireme_base PRIVATE ${generated}/build_info.cpp)
  set_source_files_properties(${generated}/build_info.cpp PROPERTIES OBJECT_DEPENDS ${generated}/git_hash.hpp)
  add_dependencies(trireme_base trireme_git_hash)
endfunction()

# The library target Trireme::trireme (all layers) and, once src/cli/main.cpp exists, the program `trireme`.
function(trireme_program)
  get_property(values GLOBAL PROPERTY trireme_value_layers)
  get_property(machine GLOBAL PROPERTY trireme_machine_layers)
  set(layers ${values} ${machine})
  list(TRANSFORM layers PREPEND trireme_)
  add_library(trireme_library INTERFACE)
  target_link_libraries(trireme_library INTERFACE ${layers})
  add_library(Trireme::trireme ALIAS trireme_library)

  file(GLOB main CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/main.cpp)
  if(main)
    add_executable(trireme ${main})
    trireme_compile_settings(trireme)
    target_link_libraries(trireme PRIVATE Trireme::trireme)
    trireme_without_cuda()
  else()
    message(STATUS "src/cli/main.cpp does not exist yet: no program")
  endif()
endfunction()

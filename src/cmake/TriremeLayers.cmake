# SPDX-License-Identifier: Apache-2.0
#
# One static library per layer, made of src/<layer>/*.cpp, linked to the layers above it in the list.

set_property(GLOBAL PROPERTY trireme_value_layers "")
set_property(GLOBAL PROPERTY trireme_machine_layers "")

# trireme_layer(<layer> [MACHINE] [PUBLIC <libraries>] [PRIVATE <libraries>])
# The target trireme_<layer>. It sees every layer declared before it. Without sources it is an INTERFACE library.
function(trireme_layer layer)
  cmake_parse_arguments(PARSE_ARGV 1 arg "MACHINE" "" "PUBLIC;PRIVATE")
  get_property(values GLOBAL PROPERTY trireme_value_layers)
  get_property(machine GLOBAL PROPERTY trireme_machine_layers)
  set(sees ${values} ${machine})
  list(TRANSFORM sees PREPEND trireme_)

  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${layer}/*.cpp)
  list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/src/${layer}/main.cpp)
  if(sources)
    add_library(trireme_${layer} STATIC ${sources})
    trireme_compile_settings(trireme_${layer})
    target_include_directories(trireme_${layer} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(trireme_${layer} PUBLIC ${sees} ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
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

# The generated source behind trireme::build_info(): versions when configuring, the git hash at every build.
function(trireme_build_info)
  # "Open MPI v4.1.4, package: ..." -> "Open MPI v4.1.4"; the standard's version where the library does not say.
  string(REGEX MATCH "^[^,\n]+" mpi "${MPI_CXX_LIBRARY_VERSION_STRING}")
  if(NOT mpi)
    set(mpi ${MPI_CXX_VERSION})
  endif()
  set(libraries "")
  foreach(pair "libtorch=${Libtorch_VERSION}" "Kokkos=${Kokkos_VERSION}" "MPI=${mpi}" "HDF5=${HDF5_VERSION}"
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
  else()
    message(STATUS "src/cli/main.cpp does not exist yet: no program")
  endif()
endfunction()

# SPDX-License-Identifier: Apache-2.0
#
# One static library per layer, made of src/<layer>/*.cpp and src/<layer>/<folder>/*.cpp, linked to the layers above it in
# the list.
#
# Backends by link: a build for GPUs (TRIREME_CUDA) compiles src/<layer>/cuda and its folders into a separate library,
# trireme_<layer>_cuda; every other build compiles src/<layer>/no_cuda*.cpp, which define the same functions. All other
# objects are the same either way. A build for GPUs also links the program from the no_cuda files, without the CUDA
# libraries, for machines without a driver: a function that the no_cuda files lack is undefined there.

set_property(GLOBAL PROPERTY trireme_value_layers "")
set_property(GLOBAL PROPERTY trireme_machine_layers "")
set_property(GLOBAL PROPERTY trireme_no_cuda_sources "")
set_property(GLOBAL PROPERTY trireme_external_libraries "")

# Where most of the time of the value tests goes: the values preset (-O1) compiles them with -O2.
set(trireme_layers_of_plans model schedule planner)

# Layers without loops over elements: -O1 compiles them in three quarters of the time.
set(trireme_light_layers config report supervise cli)

function(trireme_light_optimization target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:$<$<CONFIG:Release>:-O1>>)
endfunction()

# trireme_layer(<layer> [MACHINE] [PUBLIC <libraries>] [PRIVATE <libraries>] [CUDA <libraries of a build for GPUs>])
# The target trireme_<layer>. It sees every layer declared before it. Without sources it is an INTERFACE library.
function(trireme_layer layer)
  cmake_parse_arguments(PARSE_ARGV 1 arg "MACHINE" "" "PUBLIC;PRIVATE;CUDA")
  if(arg_MACHINE AND TRIREME_VALUES_ONLY)
    return()
  endif()
  get_property(values GLOBAL PROPERTY trireme_value_layers)
  get_property(machine GLOBAL PROPERTY trireme_machine_layers)
  set(sees ${values} ${machine})
  list(TRANSFORM sees PREPEND trireme_)

  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${layer}/*.cpp ${PROJECT_SOURCE_DIR}/src/${layer}/*/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/src/${layer}/cuda/")
  list(FILTER sources EXCLUDE REGEX "/src/${layer}/(front/)?main\\.cpp$")
  set(no_cuda ${sources})
  list(FILTER no_cuda INCLUDE REGEX "/no_cuda[^/]*\\.cpp$")
  if(TRIREME_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_cuda[^/]*\\.cpp$")
    set_property(GLOBAL APPEND PROPERTY trireme_no_cuda_sources ${no_cuda})
    set(of_cuda ${PROJECT_SOURCE_DIR}/src/${layer}/cuda)
    file(GLOB cuda CONFIGURE_DEPENDS ${of_cuda}/*.cpp ${of_cuda}/*.cu ${of_cuda}/*/*.cpp ${of_cuda}/*/*.cu)
  elseif(no_cuda)  # by themselves, so that all else is compiled in the same batches as in a build for GPUs
    set_source_files_properties(${no_cuda} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(sources)
    add_library(trireme_${layer} STATIC ${sources})
    trireme_compile_settings(trireme_${layer})
    if(TRIREME_VALUES_ONLY AND layer IN_LIST trireme_layers_of_plans)
      target_compile_options(trireme_${layer} PRIVATE $<$<CONFIG:Release>:-O2>)
    endif()
    if(layer IN_LIST trireme_light_layers)
      trireme_light_optimization(trireme_${layer})
    endif()
    target_include_directories(trireme_${layer} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(trireme_${layer} PUBLIC ${sees} ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
    if(cuda)
      add_library(trireme_${layer}_cuda STATIC ${cuda})
      trireme_compile_settings(trireme_${layer}_cuda)
      # Only these see CUDA's headers: all others compile as they do without it, and are the same object in a compiler cache.
      target_include_directories(trireme_${layer}_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE_DIR})
      # The two halves of a layer call each other: CMake repeats them on the linker's command line.
      target_link_libraries(trireme_${layer}_cuda PUBLIC trireme_${layer} PRIVATE ${arg_PRIVATE})
      target_link_libraries(trireme_${layer} INTERFACE $<LINK_ONLY:trireme_${layer}_cuda>)
    endif()
    if(TRIREME_CUDA)
      list(TRANSFORM arg_CUDA REPLACE "(.+)" "$<LINK_ONLY:\\1>")
      target_link_libraries(trireme_${layer} INTERFACE ${arg_CUDA})
    endif()
  else()
    add_library(trireme_${layer} INTERFACE)
    target_include_directories(trireme_${layer} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
    target_link_libraries(trireme_${layer} INTERFACE ${sees} ${arg_PUBLIC})
  endif()

  set_property(GLOBAL APPEND PROPERTY trireme_external_libraries ${arg_PUBLIC} ${arg_PRIVATE})
  if(arg_MACHINE)
    set_property(GLOBAL APPEND PROPERTY trireme_machine_layers ${layer})
  else()
    set_property(GLOBAL APPEND PROPERTY trireme_value_layers ${layer})
  endif()
endfunction()

# Links every layer's own library into `target`, and none of the CUDA halves: what they would define has to come from the
# target's own sources or objects, or stays undefined.
function(trireme_link_without_cuda target)
  get_property(values GLOBAL PROPERTY trireme_value_layers)
  get_property(machine GLOBAL PROPERTY trireme_machine_layers)
  get_property(external GLOBAL PROPERTY trireme_external_libraries)
  list(REMOVE_DUPLICATES external)
  set(archives "")
  foreach(layer IN LISTS values machine)
    get_target_property(type trireme_${layer} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND archives $<TARGET_FILE:trireme_${layer}>)
      add_dependencies(${target} trireme_${layer})
    endif()
  endforeach()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE -Wl,--start-group ${archives} -Wl,--end-group ${external})
endfunction()

# In a build for GPUs: a second program from the same objects, with the no_cuda files instead of the CUDA code. `trireme`
# starts it on machines without a driver: loading the CUDA libraries would double its start-up time.
function(trireme_full_without_driver)
  get_property(no_cuda GLOBAL PROPERTY trireme_no_cuda_sources)
  if(NOT no_cuda)
    return()
  endif()
  add_library(trireme_no_cuda OBJECT ${no_cuda})
  add_executable(trireme_full_cpu $<TARGET_OBJECTS:trireme_main>)
  set_target_properties(trireme_full_cpu PROPERTIES OUTPUT_NAME trireme LINKER_LANGUAGE CXX RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/libexec/trireme/cpu)
  target_compile_definitions(trireme_no_cuda PRIVATE TRIREME_NO_DRIVER)
  target_link_libraries(trireme_full_cpu PRIVATE trireme_no_cuda)
  foreach(target trireme_no_cuda trireme_full_cpu)
    trireme_compile_settings(${target})
    trireme_link_without_cuda(${target})
  endforeach()
  add_dependencies(trireme trireme_full_cpu)
endfunction()

# The generated source behind trireme::build_info(): versions when configuring, the git hash at every build.
function(trireme_build_info)
  # "Open MPI v4.1.4, package: ..." -> "Open MPI v4.1.4"; the version of the standard if the library string is empty.
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
               "CLI11=${CLI11_VERSION}" "spdlog=${spdlog_VERSION}" "SentencePiece=${SENTENCEPIECE_VERSION}"
               "PCRE2=${PCRE2_VERSION}" "utf8proc=${UTF8PROC_VERSION}")
    string(REPLACE "=" ";" pair "${pair}")
    list(GET pair 0 name)
    list(GET pair 1 version)
    if(NOT version) # the value layers alone
      continue()
    endif()
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
  # Apart in a unity build: it is compiled anew after every commit.
  set_source_files_properties(${generated}/build_info.cpp PROPERTIES OBJECT_DEPENDS ${generated}/git_hash.hpp
    SKIP_UNITY_BUILD_INCLUSION ON)
  add_dependencies(trireme_base trireme_git_hash)
endfunction()

# The machine files of inputs/machines as a source of the planner: the program finds them wherever it is installed.
function(trireme_shipped_machines)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/inputs/machines/*.toml)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(machines "")
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND machines "    {\"${name}\", R\"toml(${text})toml\"},\n")
  endforeach()
  set(generated ${PROJECT_BINARY_DIR}/generated)
  configure_file(${PROJECT_SOURCE_DIR}/src/cmake/shipped_machines.cpp.in ${generated}/shipped_machines.cpp @ONLY)
  target_sources(trireme_planner PRIVATE ${generated}/shipped_machines.cpp)
endfunction()

# jobs/launch.sh as a source of the programs, for the scripts of `trireme submit`.
function(trireme_launch_script result)
  set(file ${PROJECT_SOURCE_DIR}/jobs/launch.sh)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} launch)
  configure_file(${PROJECT_SOURCE_DIR}/src/cmake/launch_script.cpp.in ${PROJECT_BINARY_DIR}/generated/launch_script.cpp @ONLY)
  set(${result} ${PROJECT_BINARY_DIR}/generated/launch_script.cpp PARENT_SCOPE)
endfunction()

# The program that users start, `trireme`: from src/cli/front and what of src/cli only needs the value layers, so that
# `trireme plan` starts at once. It runs the full program for every other command.
function(trireme_front)
  set(cli ${PROJECT_SOURCE_DIR}/src/cli)
  file(GLOB sources CONFIGURE_DEPENDS ${cli}/front/*.cpp ${cli}/plan*.cpp ${cli}/submit*.cpp ${cli}/supervise/*.cpp
    ${cli}/this_build.cpp
    ${cli}/start/help_text.cpp ${cli}/start/launcher.cpp ${cli}/start/numbers.cpp
    ${cli}/start/log.cpp ${cli}/start/standard_streams.cpp ${cli}/start/train_arguments.cpp)
  get_property(values GLOBAL PROPERTY trireme_value_layers)
  list(TRANSFORM values PREPEND trireme_)
  trireme_launch_script(launch_script)
  # Objects apart from the program, whose link alone follows that of the full program.
  add_library(trireme_front OBJECT ${sources} ${launch_script})
  trireme_compile_settings(trireme_front)
  trireme_light_optimization(trireme_front)
  file(RELATIVE_PATH full_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBEXECDIR}/trireme/trireme)
  target_compile_definitions(trireme_front PRIVATE TRIREME_FULL_PROGRAM="${full_program}")
  target_include_directories(trireme_front PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(trireme_front PUBLIC ${values} CLI11::CLI11 spdlog::spdlog fmt::fmt ${CMAKE_DL_LIBS})
  add_executable(trireme)
  target_link_libraries(trireme PRIVATE trireme_front)
endfunction()

# The library target Trireme::trireme (all layers) and the programs: `trireme`, trireme_full in libexec/trireme and, in a
# build for GPUs, trireme_full_cpu in libexec/trireme/cpu.
function(trireme_program)
  if(TRIREME_VALUES_ONLY)
    if(CLI11_FOUND AND spdlog_FOUND)
      trireme_front() # plans, and cannot train
    endif()
    return()
  endif()
  get_property(values GLOBAL PROPERTY trireme_value_layers)
  get_property(machine GLOBAL PROPERTY trireme_machine_layers)
  set(layers ${values} ${machine})
  list(TRANSFORM layers PREPEND trireme_)
  trireme_launch_script(launch_script)
  target_sources(trireme_cli PRIVATE ${launch_script})
  add_library(trireme_library INTERFACE)
  target_link_libraries(trireme_library INTERFACE ${layers})
  add_library(Trireme::trireme ALIAS trireme_library)

  # Compiled once for the programs with all commands. They take the object alone: what they link differs.
  add_library(trireme_main OBJECT ${PROJECT_SOURCE_DIR}/src/cli/main.cpp)
  trireme_compile_settings(trireme_main)
  trireme_light_optimization(trireme_main)
  target_include_directories(trireme_main PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(trireme_main PRIVATE Trireme::trireme CLI11::CLI11)
  add_executable(trireme_full $<TARGET_OBJECTS:trireme_main>)
  # The same name in ps, pgrep and job accounting.
  set_target_properties(trireme_full PROPERTIES OUTPUT_NAME trireme LINKER_LANGUAGE CXX RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/libexec/trireme)
  trireme_compile_settings(trireme_full)
  target_link_libraries(trireme_full PRIVATE Trireme::trireme)
  trireme_front()
  add_dependencies(trireme trireme_full)
  trireme_full_without_driver()
endfunction()

# SPDX-License-Identifier: Apache-2.0
#
# Registers the files of tests/ by name:
#   tests/<layer>/<x>_test.cpp      one GoogleTest executable and one ctest per layer, <layer>_tests and <layer>.tests (label values
#                                   or machine)
#   tests/<layer>/<x>_mpi_test.cpp  one executable each, <layer>_<x>_mpi_test, in a unity build one per layer, <layer>_mpi_tests,
#                                   run by source (--file); at several rank counts (label mpi): <layer>.<x>_mpi_test.ranks4
#   tests/<layer>/<x>_gpu_mpi_test.cpp  the same with GPUs (give it the label gpu), one executable each, skipped where there is none
#   tests/<layer>/<x>_gpu_test.cpp  one executable per layer (label gpu), skipped where there is no GPU
#                                   of nn, device, comm and train also on a GPU simulated on the CPU: simulated_gpu.*
#   tests/<layer>/<x>_cli_test.sh   the program under bash (label machine, and mpi if its name has "mpi"); exit code 77: skipped
#   tests/slurm/<x>_slurm_test.sh   batch jobs on a Slurm cluster of two nodes on this machine (label slow), skipped where it cannot be
#   tests/bench/<x>_bench.cpp       google-benchmark executables, built by name, never run by ctest; in a unity build `all` has
#                                   one of all of them, `benchmarks`, which shows that they compile and link
#   tests/support/                  shared code of machine tests, and their main functions
# Settings of a test file, each on a separate line:  // ranks: 1 2 3   // timeout: 300   // labels: slow   (# in .sh)
#
# ctest shares out the cores (tests/run.sh: two slots more than cores). A rank of a test with computing ranks takes a slot, ranks
# for all cores take one more: one script runs at the same time. The scripts, which mostly wait for programs to start and to end, take
# one slot each, whatever they start. Tests of several slots are started first; of both kinds, what may take longest (timeout).
cmake_host_system_information(RESULT trireme_cores QUERY NUMBER_OF_LOGICAL_CORES)
set(trireme_test_environment
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_PROC_BIND=false OMP_WAIT_POLICY=passive
  OMPI_MCA_mpi_yield_when_idle=1 GTEST_COLOR=no)
# Only the tests for GPUs see one: device.type = auto trains on the CPU in all others, wherever they run.
set(trireme_gpu_test_environment ${trireme_test_environment})
list(APPEND trireme_test_environment CUDA_VISIBLE_DEVICES=)
set(TRIREME_MPIEXEC_FLAGS --oversubscribe --bind-to none CACHE STRING "Options of the MPI launcher in the tests")
set(TRIREME_TEST_PATIENCE 1 CACHE STRING "Factor of the time limits of tests in C++, for builds with sanitizers")
mark_as_advanced(TRIREME_MPIEXEC_FLAGS TRIREME_TEST_PATIENCE)

function(trireme_tests)
  find_package(GTest 1.12 REQUIRED)
  add_library(trireme_test_headers INTERFACE)
  target_include_directories(trireme_test_headers INTERFACE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(trireme_test_headers INTERFACE GTest::gtest GTest::gmock)
  get_property(values GLOBAL PROPERTY trireme_value_layers)
  get_property(machine GLOBAL PROPERTY trireme_machine_layers)
  if(TRIREME_VALUES_ONLY)
    foreach(layer IN LISTS values)
      trireme_layer_tests(${layer})
    endforeach()
    return()
  endif()

  find_package(benchmark REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  trireme_test_support()
  foreach(layer IN LISTS values machine)
    trireme_layer_tests(${layer})
    trireme_mpi_tests(${layer})
    trireme_gpu_tests(${layer})
    trireme_emulated_tests(${layer})
    trireme_cli_tests(${layer})
  endforeach()
  trireme_simulated_gpu_tests()
  trireme_nccl_probe()
  trireme_many_commands()
  trireme_benchmarks()
  trireme_mpi_main_test()
  trireme_install_test()
  trireme_slurm_tests()

  if(TARGET trireme_full_cpu)
    add_test(NAME support.without_cuda COMMAND bash -eu -o pipefail ${PROJECT_SOURCE_DIR}/tests/support/without_cuda_test.sh)
    set_tests_properties(support.without_cuda PROPERTIES LABELS machine TIMEOUT 60
      ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=1;PROGRAM=$<TARGET_FILE:trireme_full_cpu>;REASON=no NVIDIA driver here;TRIREME=$<TARGET_FILE:trireme>;TRIREME_SOURCE=${PROJECT_SOURCE_DIR}")
  endif()
  if(TRIREME_CUDA)
    add_test(NAME kernels.device_code COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/kernels/device_code_test.py
      $<TARGET_FILE:trireme_kernels_cuda> $<TARGET_FILE:trireme_optim_cuda> $<TARGET_FILE:trireme_comm_cuda>)
    set_tests_properties(kernels.device_code PROPERTIES LABELS machine TIMEOUT 60)
    add_test(NAME support.build_without_cuda COMMAND bash -eu -o pipefail ${PROJECT_SOURCE_DIR}/tests/support/build_without_cuda_test.sh)
    set_tests_properties(support.build_without_cuda PROPERTIES LABELS "machine;slow" TIMEOUT 1200 PROCESSORS 2
      ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=1;BUILD=${PROJECT_BINARY_DIR};TRIREME_SOURCE=${PROJECT_SOURCE_DIR}")
  endif()
  add_test(NAME support.skips COMMAND bash -eu -o pipefail ${PROJECT_SOURCE_DIR}/tests/support/probe/skips_test.sh)
  set_tests_properties(support.skips PROPERTIES LABELS machine TIMEOUT 120
    ENVIRONMENT "${trireme_test_environment};DATA_TESTS=$<TARGET_FILE:data_tests>;TRIREME_SOURCE=${PROJECT_SOURCE_DIR}")
  add_test(NAME lint COMMAND bash ${PROJECT_SOURCE_DIR}/tests/lint.sh format shell python)
  add_test(NAME lint.tidy COMMAND bash ${PROJECT_SOURCE_DIR}/tests/lint.sh tidy)
  set_tests_properties(lint PROPERTIES LABELS lint TIMEOUT 300 SKIP_RETURN_CODE 77 ENVIRONMENT "TRIREME_CACHE=${TRIREME_CACHE}")
  set_tests_properties(lint.tidy PROPERTIES LABELS lint TIMEOUT 1200 COST 600 SKIP_RETURN_CODE 77)  # two minutes of a core
  add_test(NAME layering COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/layering_test.py)
  add_test(NAME documents COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/documents_test.py)
  add_test(NAME site COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/site_test.py)
  set_tests_properties(site PROPERTIES LABELS lint TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "TRIREME_CACHE=${TRIREME_CACHE}")
  add_test(NAME commits COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/commits_test.py)
  add_test(NAME language COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/language_test.py)
  add_test(NAME baseline COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/baseline/baseline_test.py)
  add_test(NAME counted_scale COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/support/counted_calls/scale_test.py)
  add_test(NAME gpu_judge COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/gpu_judge_test.py)
  add_test(NAME gpu_steps COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/gpu_steps_test.py)
  add_test(NAME gpu_expected COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/gpu_expected_test.py)
  set_tests_properties(gpu_expected PROPERTIES LABELS machine TIMEOUT 60 ENVIRONMENT "${trireme_test_environment};TRIREME=$<TARGET_FILE:trireme>")
  add_test(NAME spack COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/spack_test.py)
  set_tests_properties(layering documents commits language baseline counted_scale PROPERTIES LABELS lint TIMEOUT 60)
  set_tests_properties(gpu_judge gpu_steps PROPERTIES LABELS machine TIMEOUT 300)  # start dozens of processes
  set_tests_properties(spack PROPERTIES LABELS machine TIMEOUT 60)
  add_test(NAME spack.concretizes COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/spack_test.py --concretize)
  set_tests_properties(spack.concretizes PROPERTIES LABELS "machine;slow" TIMEOUT 900 SKIP_RETURN_CODE 77)  # a minute each
  trireme_start_wide_tests_first()
endfunction()

function(trireme_start_wide_tests_first)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    get_test_property(${test} PROCESSORS processors)
    get_test_property(${test} COST cost)
    if(processors GREATER 1)
      if(NOT cost)
        set(cost 0)
      endif()
      math(EXPR cost "10000 + ${cost}")
      set_tests_properties(${test} PROPERTIES COST ${cost})
    endif()
  endforeach()
endfunction()

# trireme_test_support: everything in tests/support except the main functions, which become separate libraries.
function(trireme_test_support)
  set(support ${PROJECT_SOURCE_DIR}/tests/support)
  file(GLOB sources CONFIGURE_DEPENDS ${support}/*.cpp ${support}/reference/*.cpp)
  set(mains ${sources})
  list(FILTER mains INCLUDE REGEX "_main\\.cpp$")
  list(REMOVE_ITEM sources ${mains})

  # Linked before a test's layer, which resolves the symbols of the members in use. A test thus depends on no layer that
  # it does not include.
  set(libraries trireme_test_headers Libtorch::Libtorch MPI::MPI_CXX Kokkos::kokkos)
  if(sources)
    add_library(trireme_test_support STATIC ${sources})
    trireme_compile_settings(trireme_test_support)
    # One object per source: a test links those that it uses, and with them the layers that it sees. The plain models use none.
    set_target_properties(trireme_test_support PROPERTIES UNITY_BUILD_MODE GROUP)
    set(models plain_experts plain_gpt2 plain_llama)
    list(TRANSFORM models REPLACE "(.+)" "${support}/reference/\\1.cpp")
    set_source_files_properties(${models} PROPERTIES UNITY_GROUP models)
    target_include_directories(trireme_test_support PUBLIC ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(trireme_test_support PUBLIC ${libraries} PRIVATE fmt::fmt)
  else()
    add_library(trireme_test_support INTERFACE)
    target_link_libraries(trireme_test_support INTERFACE ${libraries})
  endif()

  file(GLOB faulty CONFIGURE_DEPENDS ${support}/system_calls/*.cpp)
  add_library(system_calls MODULE ${faulty})
  trireme_test_compile_settings(system_calls)
  target_include_directories(system_calls PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(system_calls PRIVATE ${CMAKE_DL_LIBS})
  file(GLOB counted CONFIGURE_DEPENDS ${support}/counted_calls/*.cpp)
  add_library(counted_calls MODULE ${counted})
  trireme_test_compile_settings(counted_calls)
  target_link_libraries(counted_calls PRIVATE MPI::MPI_CXX ${CMAKE_DL_LIBS})
  add_library(stopped_calls MODULE ${support}/stopped_calls/stopped_calls.cpp)
  trireme_test_compile_settings(stopped_calls)
  target_link_libraries(stopped_calls PRIVATE MPI::MPI_CXX ${CMAKE_DL_LIBS})

  foreach(main IN LISTS mains)
    get_filename_component(name ${main} NAME_WE)
    add_library(trireme_${name} OBJECT ${main})
    trireme_compile_settings(trireme_${name})
    target_link_libraries(trireme_${name} PUBLIC trireme_test_headers MPI::MPI_CXX Kokkos::kokkos)
  endforeach()
  if(TARGET trireme_bench_main)
    target_link_libraries(trireme_bench_main PUBLIC benchmark::benchmark)
  endif()
endfunction()

# The flags of a test: built once and run for seconds, it is not worth -O3 (a third less compile time).
function(trireme_test_compile_settings target)
  trireme_compile_settings(${target})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# An executable of ours from test sources; `main` names the file of tests/support with its main function, without _main.
function(trireme_test_executable target main layer)
  add_executable(${target} ${ARGN})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX) # of some the sources are objects alone
  trireme_test_compile_settings(${target})
  target_link_libraries(${target} PRIVATE trireme_${main}_main trireme_test_support trireme_${layer})
  if(layer STREQUAL checkpoint) # which makes files that no save writes
    target_link_libraries(${target} PRIVATE Trireme::hdf5)
  endif()
endfunction()

# Sets ${key}_${variable} in the caller: the words after "// key:" in a test file, else the default.
function(trireme_test_setting file key default variable)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} line REGEX "^(//|#) *${key}: " LIMIT_COUNT 1)
  if(line)
    string(REGEX REPLACE "^(//|#) *${key}: *" "" default "${line}")
    string(REGEX REPLACE "[ ,]+" ";" default "${default}")
  endif()
  set(${variable} ${default} PARENT_SCOPE)
endfunction()

# Sets `variable` to the time limit of a test in this build.
function(trireme_limit seconds variable)
  math(EXPR limit "${seconds} * ${TRIREME_TEST_PATIENCE}")
  set(${variable} ${limit} PARENT_SCOPE)
endfunction()

# Sets `variable` to the slots of a test with so many threads that compute: at most one more than there are cores.
function(trireme_processors threads variable)
  if(NOT threads LESS trireme_cores)
    math(EXPR threads "${trireme_cores} + 1")
  endif()
  set(${variable} ${threads} PARENT_SCOPE)
endfunction()

function(trireme_layer_tests layer)
  set(directory ${PROJECT_SOURCE_DIR}/tests/${layer})
  file(GLOB sources CONFIGURE_DEPENDS ${directory}/*_test.cpp ${directory}/*/*_test.cpp)
  list(FILTER sources EXCLUDE REGEX "_(mpi|gpu)_test\\.cpp$")
  if(NOT sources)
    return()
  endif()
  get_property(values GLOBAL PROPERTY trireme_value_layers)
  if(layer IN_LIST values)
    add_executable(${layer}_tests ${sources})
    trireme_test_compile_settings(${layer}_tests)
    # Value tests alone read files of the checkout: the objects of all others are the same wherever it lies.
    target_compile_definitions(${layer}_tests PRIVATE TRIREME_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    target_link_libraries(${layer}_tests PRIVATE trireme_${layer} trireme_test_headers GTest::gtest_main)
    trireme_limit(180 limit)
    # The planner's take more than half of the time of all: in eight parts, which find their places on any number of cores, first.
    set(parts 1)
    if(layer STREQUAL planner)
      set(parts 8)
    endif()
    foreach(part RANGE 1 ${parts})
      set(name ${layer}.tests)
      if(parts GREATER 1)
        string(APPEND name .part${part})
      endif()
      math(EXPR index "${part} - 1")
      add_test(NAME ${name} COMMAND ${layer}_tests --gtest_brief=1 WORKING_DIRECTORY ${directory})
      set_tests_properties(${name} PROPERTIES LABELS values TIMEOUT ${limit} COST ${parts}
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${index}")
    endforeach()
  else()
    trireme_test_executable(${layer}_tests machine ${layer} ${sources})
    add_test(NAME ${layer}.tests COMMAND ${layer}_tests --gtest_brief=1 WORKING_DIRECTORY ${directory})
    list(JOIN TRIREME_MPIEXEC_FLAGS " " mpi_flags)
    trireme_limit(300 limit)
    set(processors 2)
    if(layer MATCHES "^(comm|supervise)$") # which wait for timeouts, for half a minute
      set(processors 1)
    endif()
    set_tests_properties(${layer}.tests PROPERTIES LABELS machine TIMEOUT ${limit} COST ${limit} PROCESSORS ${processors} SKIP_RETURN_CODE 77
      ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=2;MPIEXEC=${MPIEXEC_EXECUTABLE};MPIEXEC_FLAGS=${mpi_flags}")
  endif()
endfunction()

function(trireme_mpi_tests layer)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${layer}/*_mpi_test.cpp ${PROJECT_SOURCE_DIR}/tests/${layer}/*/*_mpi_test.cpp)
  set(shared ${files})
  list(FILTER shared EXCLUDE REGEX "_gpu_mpi_test\\.cpp$")
  if(shared AND TRIREME_UNITY)
    trireme_test_executable(${layer}_mpi_tests mpi ${layer} ${shared})
  endif()
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    set(command $<TARGET_FILE:${layer}_mpi_tests> --file ${name})
    set(sources ${file})
    if(name MATCHES "_gpu_mpi_test$")
      trireme_gpu_test_objects(${layer}_${name}_objects ${layer} ${file})
      set(sources $<TARGET_OBJECTS:${layer}_${name}_objects>)
    endif()
    if(NOT TRIREME_UNITY OR name MATCHES "_gpu_mpi_test$")
      trireme_test_executable(${layer}_${name} mpi ${layer} ${sources})
      set(command $<TARGET_FILE:${layer}_${name}>)
    endif()
    trireme_test_setting(${file} ranks "1;2;4" rank_counts)
    trireme_test_setting(${file} timeout 300 timeout)
    trireme_limit(${timeout} limit)
    trireme_test_setting(${file} labels "" labels)
    foreach(ranks IN LISTS rank_counts)
      trireme_processors(${ranks} processors)
      set(test ${layer}.${name}.ranks${ranks})
      add_test(NAME ${test} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests/${layer}
        COMMAND ${MPIEXEC_EXECUTABLE} ${TRIREME_MPIEXEC_FLAGS} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${command})
      set_tests_properties(${test} PROPERTIES LABELS "mpi;${labels}" TIMEOUT ${limit} COST ${timeout} PROCESSORS ${processors}
        ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=1")
      if(name MATCHES "_gpu_mpi_test$")
        set_tests_properties(${test} PROPERTIES ENVIRONMENT "${trireme_gpu_test_environment};OMP_NUM_THREADS=1"
          SKIP_REGULAR_EXPRESSION "CUDA finds no GPU|built without CUDA")
      endif()
    endforeach()
  endforeach()
endfunction()

function(trireme_gpu_tests layer)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${layer}/*_gpu_test.cpp ${PROJECT_SOURCE_DIR}/tests/${layer}/*/*_gpu_test.cpp)
  if(NOT sources)
    return()
  endif()
  trireme_gpu_test_objects(${layer}_gpu_test_objects ${layer} ${sources})
  if(TRIREME_CUDA)
    trireme_test_executable(${layer}_gpu_tests machine ${layer} $<TARGET_OBJECTS:${layer}_gpu_test_objects>)
    add_test(NAME ${layer}.gpu_tests
      COMMAND sh -c "[ -e /dev/nvidiactl ] || { echo 'no GPU here'; exit 77; }; exec $<TARGET_FILE:${layer}_gpu_tests>")
  else()
    add_test(NAME ${layer}.gpu_tests COMMAND sh -c "echo 'built without TRIREME_CUDA'; exit 77")
  endif()
  set_tests_properties(${layer}.gpu_tests PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 TIMEOUT 300 PROCESSORS 2)
endfunction()

# NCCL's behaviour between ranks: tests/support/nccl_probe. Without a GPU it only tests that the library loads and that the
# probe's expected values are right.
function(trireme_nccl_probe)
  if(NOT TRIREME_CUDA)
    return()
  endif()
  add_executable(nccl_probe ${PROJECT_SOURCE_DIR}/tests/support/nccl_probe/nccl_probe.cpp ${PROJECT_SOURCE_DIR}/tests/support/nccl_probe/kernels.cu)
  target_compile_features(nccl_probe PRIVATE cuda_std_20)
  target_link_libraries(nccl_probe PRIVATE MPI::MPI_CXX Trireme::nccl CUDA::cudart)
  set(environment "${trireme_test_environment};NCCL_SOCKET_IFNAME=lo;NCCL_SOCKET_FAMILY=AF_INET;NCCL_NET=Socket;PROBE_SMALL=1")
  add_test(NAME nccl_probe.load COMMAND nccl_probe --load)
  foreach(ranks 2 4)
    add_test(NAME nccl_probe.oracle.ranks${ranks} COMMAND ${MPIEXEC_EXECUTABLE} ${TRIREME_MPIEXEC_FLAGS} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
      $<TARGET_FILE:nccl_probe> --oracle-only)
    set_tests_properties(nccl_probe.oracle.ranks${ranks} PROPERTIES LABELS mpi TIMEOUT 120 PROCESSORS 2 ENVIRONMENT "${environment}")
  endforeach()
  set_tests_properties(nccl_probe.load PROPERTIES LABELS machine TIMEOUT 60 ENVIRONMENT "${environment}")
endfunction()

# The tests for GPUs are compiled once for a real GPU, for emulated kernels and for a simulated one.
function(trireme_gpu_test_objects target layer)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${ARGN})
  trireme_test_compile_settings(${target})
  target_link_libraries(${target} PRIVATE trireme_test_support trireme_${layer} Kokkos::kokkos)
endfunction()

# The same tests with the kernels of src/<layer>/cuda as plain C++ against tests/kernels/on_host, which needs neither a GPU
# nor CUDA: <layer>_emulated_tests. They are linked as objects, before the layer's own.
function(trireme_emulated_tests layer)
  set(emulator ${PROJECT_SOURCE_DIR}/tests/kernels/on_host)
  file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${layer}/cuda/*.cu)
  if(NOT TARGET ${layer}_gpu_test_objects OR NOT kernels)
    return()
  endif()
  if(NOT TARGET trireme_kernels_on_host)
    trireme_emulated_objects(trireme_cuda_on_host ${emulator}/cuda_on_host.cpp ${emulator}/cublas_on_host.cpp)
    # Where tests on a simulated GPU spend a third of their time.
    target_compile_options(trireme_cuda_on_host PRIVATE $<$<CONFIG:Release>:-O3>)
    trireme_emulated_objects(trireme_gpu_on_host ${emulator}/gpu_on_host.cpp)
    trireme_emulated_layer(kernels)
  endif()
  if(NOT TARGET trireme_${layer}_on_host)
    trireme_emulated_layer(${layer})
  endif()
  set(objects trireme_cuda_on_host trireme_gpu_on_host trireme_kernels_on_host trireme_${layer}_on_host)
  list(REMOVE_DUPLICATES objects)
  trireme_test_executable(${layer}_emulated_tests machine ${layer} $<TARGET_OBJECTS:${layer}_gpu_test_objects>)
  target_link_libraries(${layer}_emulated_tests PRIVATE ${objects})
  if(layer STREQUAL "kernels")
    trireme_emulated_objects(trireme_emulator_tests ${emulator}/emulator_tests.cpp ${emulator}/small_chip_tests.cpp)
    target_link_libraries(${layer}_emulated_tests PRIVATE trireme_emulator_tests)
  endif()
  add_test(NAME ${layer}.emulated_tests COMMAND ${layer}_emulated_tests --gtest_brief=1)
  set_tests_properties(${layer}.emulated_tests PROPERTIES LABELS machine TIMEOUT 300 PROCESSORS 2
    ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=2")
endfunction()

# Device code of a layer that compiles without CUDA: the kernels, and the .cpp files that include no CUDA headers.
function(trireme_emulated_layer layer)
  set(of_cuda ${PROJECT_SOURCE_DIR}/src/${layer}/cuda)
  file(GLOB sources CONFIGURE_DEPENDS ${of_cuda}/*.cu ${of_cuda}/*.cpp ${of_cuda}/*/*.cu ${of_cuda}/*/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/cuda/(attention_choice|experts/capability)\\.cpp$")
  set(copies "")
  foreach(source IN LISTS sources)
    if(source MATCHES "\\.cu$")
      file(RELATIVE_PATH name ${of_cuda} ${source})
      set(copy ${PROJECT_BINARY_DIR}/generated/on_host/${layer}/${name}.cpp)
      file(CONFIGURE OUTPUT ${copy} CONTENT "#include \"${layer}/cuda/${name}\"\n")
      list(APPEND copies ${copy})
    else()
      list(APPEND copies ${source})
    endif()
  endforeach()
  trireme_emulated_objects(trireme_${layer}_on_host ${copies})
endfunction()

# Tests for GPUs on one simulated on the CPU (tests/support/simulated_gpu): the layers as they are, with the simulated
# device, the emulated kernels and a simulated NCCL in place of what needs CUDA. Not with libtorch's CUDA half, which takes
# that device type for itself: so what the layers link is named here, without it.
function(trireme_simulated_gpu_tests)
  set(support ${PROJECT_SOURCE_DIR}/tests/support/simulated_gpu)
  set(tests ${PROJECT_SOURCE_DIR}/tests)
  file(GLOB gpu CONFIGURE_DEPENDS ${support}/*.cpp)
  list(FILTER gpu EXCLUDE REGEX "_test\\.cpp$")
  file(GLOB nccl CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/comm/cuda/*.cpp ${PROJECT_SOURCE_DIR}/src/comm/cuda/*.cu)
  foreach(source IN LISTS nccl)
    # Compiled through a separate file, without the CUDA include directories.
    get_filename_component(name ${source} NAME)
    string(REGEX REPLACE "\\.cu$" ".cu.cpp" copy ${name})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/on_host/comm/${copy} CONTENT "#include \"comm/cuda/${name}\"\n")
    list(APPEND gpu ${PROJECT_BINARY_DIR}/generated/on_host/comm/${copy})
  endforeach()
  # Not among the emulated kernels, whose tensors are the host's.
  trireme_emulated_objects(trireme_simulated_gpu ${gpu} ${PROJECT_SOURCE_DIR}/src/kernels/cuda/attention_choice.cpp)
  target_include_directories(trireme_simulated_gpu BEFORE PRIVATE ${support}/cuda)
  target_link_libraries(trireme_simulated_gpu PRIVATE MPI::MPI_CXX)
  trireme_simulated_gpu_program(simulated_gpu_tests trireme_machine_main $<TARGET_OBJECTS:nn_gpu_test_objects> $<TARGET_OBJECTS:device_gpu_test_objects>
    ${support}/attention_choice_test.cpp ${support}/nvlink_test.cpp ${PROJECT_SOURCE_DIR}/src/device/cuda/nvlink.cpp)
  # In place of the driver's library, under its name.
  add_library(simulated_nvml SHARED ${support}/nvml/nvml.cpp)
  target_compile_features(simulated_nvml PRIVATE cxx_std_20)
  set_target_properties(simulated_nvml PROPERTIES OUTPUT_NAME nvidia-ml SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/simulated_nvml)
  target_link_libraries(simulated_gpu_tests PRIVATE simulated_nvml)
  add_test(NAME simulated_gpu.tests COMMAND simulated_gpu_tests --gtest_brief=1)
  set_tests_properties(simulated_gpu.tests PROPERTIES LABELS machine TIMEOUT 300 ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=1")
  trireme_simulated_gpu_program(simulated_gpu_trireme "" $<TARGET_OBJECTS:trireme_main>)
  list(JOIN TRIREME_MPIEXEC_FLAGS " " mpi_flags)
  add_test(NAME simulated_gpu.program COMMAND bash -eu -o pipefail ${support}/program_test.sh)
  set_tests_properties(simulated_gpu.program PROPERTIES LABELS "machine;mpi" TIMEOUT 600 PROCESSORS 2
    ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=1;TRIREME=$<TARGET_FILE:simulated_gpu_trireme>;MPIEXEC=${MPIEXEC_EXECUTABLE};MPIEXEC_FLAGS=${mpi_flags};TRIREME_SOURCE=${PROJECT_SOURCE_DIR}")
  add_test(NAME simulated_gpu.rehearsal COMMAND bash -eu -o pipefail ${support}/rehearsal_test.sh)
  set(real "")
  if(TRIREME_CUDA)
    set(real ${PROJECT_BINARY_DIR})
  endif()
  # Mostly one thread: programs one after the other.
  set_tests_properties(simulated_gpu.rehearsal PROPERTIES LABELS "machine;mpi" TIMEOUT 900 COST 600 PROCESSORS 1 SKIP_RETURN_CODE 77
    ENVIRONMENT "${trireme_test_environment};TRIREME=$<TARGET_FILE:simulated_gpu_trireme>;FRONT=$<TARGET_FILE:trireme>;REAL=${real};TRIREME_SOURCE=${PROJECT_SOURCE_DIR}")
  trireme_simulated_gpu_program(simulated_gpu_mpi_tests trireme_mpi_main $<TARGET_OBJECTS:comm_device_gpu_mpi_test_objects> $<TARGET_OBJECTS:train_device_gpu_mpi_test_objects>
    $<TARGET_OBJECTS:train_experts_gpu_mpi_test_objects>
    ${tests}/train/random_parity_mpi_test.cpp ${support}/closed_memory_test.cpp ${support}/first_values_test.cpp ${support}/host_waits_test.cpp ${support}/nccl_test.cpp
    ${support}/pipeline_test.cpp ${support}/updates_test.cpp ${support}/windows_test.cpp)
  # The recorder of tests/baseline, built by name.
  trireme_simulated_gpu_program(baseline trireme_mpi_main ${tests}/baseline/baseline.cpp)
  set_target_properties(baseline PROPERTIES EXCLUDE_FROM_ALL ON)
  foreach(how now late compute_late)
    set(rank_counts 1 2)
    set(left_out *OfNcclThatTakeTooLong*)
    if(NOT how STREQUAL "now")
      # Host waits, host allocations and the threads that call NCCL do not depend on the device's timing.
      string(APPEND left_out ":ClosedMemory*:HostWaits*:NcclThreads*:*PlansTheWorkspace*")
    endif()
    if(how STREQUAL "now")
      list(APPEND rank_counts 4)
    endif()
    foreach(ranks IN LISTS rank_counts)
      if(how STREQUAL "now")
        set(test simulated_gpu.mpi_tests.ranks${ranks})
        set(environment "")
      else()
        # When work runs: see engine.hpp.
        set(test simulated_gpu.${how}_mpi_tests.ranks${ranks})
        string(REPLACE "_" " " words ${how})
        set(environment "TRIREME_SIMULATED_GPU=${words}")
      endif()
      # Two ranks take every case of one: work that comes too early is seen there, work that comes late on one rank as well.
      set(labels mpi)
      if(how STREQUAL "compute_late" AND ranks EQUAL 1)
        list(APPEND labels long)
      endif()
      trireme_processors(${ranks} processors)
      add_test(NAME ${test} COMMAND ${MPIEXEC_EXECUTABLE} ${TRIREME_MPIEXEC_FLAGS} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
        $<TARGET_FILE:simulated_gpu_mpi_tests> --gtest_brief=1 --gtest_filter=-${left_out})
      set_tests_properties(${test} PROPERTIES LABELS "${labels}" TIMEOUT 600 COST 600 PROCESSORS ${processors}
        ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=1;TRIREME_SIMULATED_GPUS=4;${environment}")
    endforeach()
  endforeach()
  # NCCL with collectives that are pending after their launch.
  trireme_processors(2 processors)
  add_test(NAME simulated_gpu.concurrent_mpi_tests.ranks2 COMMAND ${MPIEXEC_EXECUTABLE} ${TRIREME_MPIEXEC_FLAGS} ${MPIEXEC_NUMPROC_FLAG} 2
    $<TARGET_FILE:simulated_gpu_mpi_tests> --gtest_brief=1 --gtest_filter=*Nccl*:Windows*-*OfNcclThatTakeTooLong*)
  set_tests_properties(simulated_gpu.concurrent_mpi_tests.ranks2 PROPERTIES LABELS mpi TIMEOUT 600 COST 600 PROCESSORS ${processors}
    ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=1;TRIREME_SIMULATED_GPUS=4;TRIREME_SIMULATED_GPU=concurrent")
endfunction()

function(trireme_simulated_gpu_program target main)
  add_executable(${target} ${ARGN})
  trireme_test_compile_settings(${target})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PRIVATE ${main} trireme_simulated_gpu trireme_cuda_on_host trireme_kernels_on_host
    trireme_optim_on_host trireme_test_support)
  trireme_link_without_cuda(${target})
endfunction()

function(trireme_emulated_objects target)
  add_library(${target} OBJECT ${ARGN})
  trireme_test_compile_settings(${target})
  target_include_directories(${target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/kernels/on_host)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE trireme_test_headers Libtorch::Libtorch fmt::fmt)
endfunction()

function(trireme_cli_tests layer)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${layer}/*_cli_test.sh ${PROJECT_SOURCE_DIR}/tests/${layer}/*/*_cli_test.sh)
  if(NOT TARGET trireme)
    return()
  endif()
  list(JOIN TRIREME_MPIEXEC_FLAGS " " mpi_flags)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    trireme_test_setting(${file} timeout 300 timeout)
    trireme_test_setting(${file} labels "" labels)
    math(EXPR longest "2 * ${timeout}") # with concurrent tests
    if(name MATCHES mpi)
      list(APPEND labels mpi)
    endif()
    add_test(NAME ${layer}.${name} COMMAND bash -eu -o pipefail ${file} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests/${layer})
    set_tests_properties(${layer}.${name} PROPERTIES LABELS "machine;${labels}" TIMEOUT ${longest} COST ${timeout} SKIP_RETURN_CODE 77
      ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=1;TRIREME=$<TARGET_FILE:trireme>;MPIEXEC=${MPIEXEC_EXECUTABLE};MPIEXEC_FLAGS=${mpi_flags};TRIREME_SOURCE=${PROJECT_SOURCE_DIR};SYSTEM_CALLS=$<TARGET_FILE:system_calls>;COUNTED_CALLS=$<TARGET_FILE:counted_calls>;STOPPED_CALLS=$<TARGET_FILE:stopped_calls>;MANY_COMMANDS=$<TARGET_FILE:many_commands>")
  endforeach()
endfunction()

# The program of tests/support/many_commands: like `trireme` without a driver, it loads no CUDA library.
function(trireme_many_commands)
  add_executable(many_commands ${PROJECT_SOURCE_DIR}/tests/support/many_commands/main.cpp $<TARGET_OBJECTS:trireme_main>)
  trireme_test_compile_settings(many_commands)
  if(TARGET trireme_no_cuda)
    target_link_libraries(many_commands PRIVATE trireme_no_cuda)
    trireme_link_without_cuda(many_commands)
  else()
    target_link_libraries(many_commands PRIVATE Trireme::trireme)
  endif()
  foreach(function main _ZN7trireme3cli11end_processEi MPI_Init_thread MPI_Finalize _ZN6Kokkos10initializeERKNS_22InitializationSettingsE _ZN6Kokkos8finalizeEv
                   _ZN6Kokkos14is_initializedEv _ZN7trireme9supervise8Watchdog4markESt17basic_string_viewIcSt11char_traitsIcEEld)
    target_link_options(many_commands PRIVATE -Wl,--wrap=${function})
  endforeach()
endfunction()

# The harness of the MPI tests is tested itself: it has to fail when one rank does.
function(trireme_mpi_main_test)
  set(support ${PROJECT_SOURCE_DIR}/tests/support)
  trireme_test_executable(mpi_main_probe mpi base ${support}/probe/failing_ranks.cpp ${support}/probe/other_source.cpp)
  list(JOIN TRIREME_MPIEXEC_FLAGS " " mpi_flags)
  add_test(NAME support.mpi_main COMMAND bash -eu -o pipefail ${support}/mpi_main_test.sh)
  set_tests_properties(support.mpi_main PROPERTIES LABELS mpi TIMEOUT 300 PROCESSORS 2
    ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=1;MPIEXEC=${MPIEXEC_EXECUTABLE};MPIEXEC_FLAGS=${mpi_flags};PROBE_PROGRAM=$<TARGET_FILE:mpi_main_probe>")
endfunction()

function(trireme_benchmarks)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/bench/*_bench.cpp)
  if(NOT TRIREME_CUDA)
    list(FILTER files EXCLUDE REGEX gpu_limits_bench)
  endif()
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    add_executable(${name} ${file})
    trireme_compile_settings(${name})
    target_link_libraries(${name} PRIVATE trireme_bench_main trireme_test_support Trireme::trireme)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ${TRIREME_UNITY})
  endforeach()
  if(TRIREME_CUDA)
    target_link_libraries(gpu_limits_bench PRIVATE CUDA::cudart CUDA::cublasLt)
  endif()
  if(TRIREME_UNITY)
    add_executable(benchmarks ${files})
    trireme_test_compile_settings(benchmarks)
    target_link_libraries(benchmarks PRIVATE trireme_bench_main trireme_test_support Trireme::trireme $<$<BOOL:${TRIREME_CUDA}>:CUDA::cudart>)
  endif()
endfunction()

# Installs the build and builds an external program against it.
function(trireme_install_test)
  if(NOT TARGET trireme)
    return()
  endif()
  list(JOIN TRIREME_MPIEXEC_FLAGS " " mpi_flags)
  set(hdf5_library ${HDF5_C_LIBRARIES})
  list(FILTER hdf5_library INCLUDE REGEX "/libhdf5[^/]*$")
  list(GET hdf5_library 0 hdf5_library)
  list(GET HDF5_INCLUDE_DIRS 0 hdf5_include)
  add_test(NAME install.serial_hdf5 COMMAND bash -eu -o pipefail ${PROJECT_SOURCE_DIR}/tests/install/serial_hdf5_test.sh)
  set_tests_properties(install.serial_hdf5 PROPERTIES LABELS machine TIMEOUT 300
    ENVIRONMENT "BUILD=${PROJECT_BINARY_DIR};HDF5_INCLUDE=${hdf5_include};HDF5_LIBRARY=${hdf5_library};TRIREME_SOURCE=${PROJECT_SOURCE_DIR}")
  add_test(NAME install.bundle COMMAND bash -eu -o pipefail ${PROJECT_SOURCE_DIR}/tests/install/bundle_test.sh)
  set_tests_properties(install.bundle PROPERTIES LABELS machine TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT "${trireme_test_environment};BUILD=${PROJECT_BINARY_DIR};TRIREME_SOURCE=${PROJECT_SOURCE_DIR}")
  add_test(NAME install COMMAND bash -eu -o pipefail ${PROJECT_SOURCE_DIR}/tests/install/install_test.sh)
  set_tests_properties(install PROPERTIES LABELS "machine;slow" TIMEOUT 300 PROCESSORS 2
    ENVIRONMENT "${trireme_test_environment};OMP_NUM_THREADS=1;BUILD=${PROJECT_BINARY_DIR};MPIEXEC=${MPIEXEC_EXECUTABLE};MPIEXEC_FLAGS=${mpi_flags};TRIREME_SOURCE=${PROJECT_SOURCE_DIR}")
endfunction()

# The scripts of jobs/, submitted to a real Slurm.
function(trireme_slurm_tests)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/slurm/*_slurm_test.sh)
  if(NOT TARGET trireme)
    return()
  endif()
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    trireme_test_setting(${file} timeout 300 timeout)
    trireme_test_setting(${file} labels "" labels)
    add_test(NAME slurm.${name} COMMAND bash -eu -o pipefail ${file} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests/slurm)
    set_tests_properties(slurm.${name} PROPERTIES LABELS "machine;mpi;slow;${labels}" TIMEOUT ${timeout} COST ${timeout} RESOURCE_LOCK slurm SKIP_RETURN_CODE 77
      ENVIRONMENT "${trireme_test_environment};TRIREME=$<TARGET_FILE:trireme>;TRIREME_SOURCE=${PROJECT_SOURCE_DIR}")
  endforeach()
endfunction()

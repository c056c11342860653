# SPDX-License-Identifier: Apache-2.0
#
# Files installed by `cmake --install`:
#   bin/trireme                 plans, and starts the full program for other commands
#   libexec/trireme/trireme     the full program; finds the libraries that it was linked to (RPATH), wherever a site put them
#   libexec/trireme/cpu/trireme the same without the libraries of CUDA, in a build for GPUs
#   lib/, include/              the layers, for programs of others: find_package(Trireme), target Trireme::trireme
#   lib/cmake/Trireme/          the package, which finds the libraries of this build
#   share/trireme/              jobs/ (batch scripts), inputs/ (run files), modulefiles/, doc/
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

function(trireme_install)
  if(TRIREME_VALUES_ONLY)
    return()
  endif()
  set(cmake_directory ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)
  set(share ${CMAKE_INSTALL_DATADIR}/trireme)
  get_property(values GLOBAL PROPERTY trireme_value_layers)
  get_property(machine GLOBAL PROPERTY trireme_machine_layers)
  foreach(layer IN LISTS values machine)
    set_target_properties(trireme_${layer} PROPERTIES EXPORT_NAME ${layer})
    install(TARGETS trireme_${layer} EXPORT TriremeTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    if(TARGET trireme_${layer}_cuda)
      set_target_properties(trireme_${layer}_cuda PROPERTIES EXPORT_NAME ${layer}_cuda)
      install(TARGETS trireme_${layer}_cuda EXPORT TriremeTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    endif()
  endforeach()
  set_target_properties(trireme_library PROPERTIES EXPORT_NAME trireme)
  install(TARGETS trireme_library EXPORT TriremeTargets)
  install(EXPORT TriremeTargets NAMESPACE Trireme:: DESTINATION ${cmake_directory})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS trireme RUNTIME)
  install(TARGETS trireme_full RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/trireme)
  if(TARGET trireme_full_cpu)
    install(TARGETS trireme_full_cpu RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/trireme/cpu)
  endif()

  set(module_directory ${PROJECT_SOURCE_DIR}/src/cmake)
  configure_package_config_file(${module_directory}/TriremeConfig.cmake.in ${PROJECT_BINARY_DIR}/TriremeConfig.cmake
    INSTALL_DESTINATION ${cmake_directory} NO_SET_AND_CHECK_MACRO)
  # Before 1.0 a minor version may break who builds against it.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/TriremeConfig.cmake ${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
    ${module_directory}/TriremeDependencies.cmake ${module_directory}/FindLibtorch.cmake DESTINATION ${cmake_directory})

  set(TRIREME_MODULE_ROOT ${CMAKE_INSTALL_PREFIX})
  configure_file(${PROJECT_SOURCE_DIR}/jobs/modulefile.lua.in ${PROJECT_BINARY_DIR}/modulefiles/${PROJECT_VERSION}.lua @ONLY)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/modulefiles/ DESTINATION ${share}/modulefiles/trireme)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/jobs/ DESTINATION ${share}/jobs USE_SOURCE_PERMISSIONS
    FILES_MATCHING PATTERN *.sbatch PATTERN plan.sh)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/inputs/ DESTINATION ${share}/inputs)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()

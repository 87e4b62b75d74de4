# SPDX-License-Identifier: Apache-2.0
# One target per folder. `tessera_folder(core/base LINK …)` makes the shared library core_base
# (libtessera_core_base.so) from every .cc below the folder, except programs' main files (main_*.cc)
# and the subfolders EXCEPT (separated by |), which have targets of their own.
function(tessera_folder folder)
  cmake_parse_arguments(ARG "HOST" "EXCEPT" "LINK" ${ARGN})
  string(REPLACE "/" "_" target ${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main_[a-z_]+\\.cc$")
  if(ARG_EXCEPT)
    list(FILTER sources EXCLUDE REGEX "/${folder}/(${ARG_EXCEPT})/")
  endif()
  if(NOT sources)
    add_library(${target} INTERFACE)
    string(REPLACE "PUBLIC" "INTERFACE" ARG_LINK "${ARG_LINK}")
    string(REPLACE "PRIVATE" "INTERFACE" ARG_LINK "${ARG_LINK}")
    target_link_libraries(${target} ${ARG_LINK})
    return()
  endif()
  tessera_units(units ${target} ${sources})
  add_library(${target} SHARED ${units})
  add_library(Tessera::${target} ALIAS ${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME tessera_${target}
                        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} DEFINE_SYMBOL ""
                        INSTALL_RPATH "$ORIGIN")
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/tessera>)
  target_link_libraries(${target} ${ARG_LINK})
  # Otherwise a library calls the copies of templates in the program that it runs in, which test
  # programs do not optimize.
  target_link_options(${target} PRIVATE LINKER:-Bsymbolic-functions)
  set(host "")
  if(ARG_HOST)
    set(host HOST)
  endif()
  tessera_compile(${target} ${host})
  set_property(GLOBAL APPEND PROPERTY TESSERA_FOLDERS ${target})
endfunction()

# tessera_program(runexp plugins LINK …): the program runexp, from the folder's main_runexp.cc.
function(tessera_program name folder)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  string(REPLACE "/" "_" target ${folder})
  add_executable(${name} ${CMAKE_SOURCE_DIR}/${folder}/main_${name}.cc)
  target_link_libraries(${name} PRIVATE ${target} ${ARG_LINK})
  set_property(GLOBAL APPEND PROPERTY TESSERA_PROGRAMS ${name})
endfunction()

# The stamp that distinguishes plugins of different builds; it depends on the public headers.
function(tessera_build_stamp)
  set(stamp ${CMAKE_BINARY_DIR}/generated/tessera_stamp.h)
  set(headers "")
  foreach(folder core layers inputs tasks plugins)
    file(GLOB_RECURSE here CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.h)
    list(APPEND headers ${here})
  endforeach()
  add_custom_command(OUTPUT ${stamp} DEPENDS ${headers} ${CMAKE_SOURCE_DIR}/cmake/BuildStamp.cmake
    COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DVERSION=${PROJECT_VERSION}
            -DOUTPUT=${stamp} -P ${CMAKE_SOURCE_DIR}/cmake/BuildStamp.cmake
    COMMENT "Stamping the build")
  add_custom_target(build_stamp DEPENDS ${stamp})
endfunction()

# Each folder of experiments/ is one plugin.
function(tessera_experiments)
  file(GLOB families CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/experiments/*)
  foreach(folder ${families})
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc)
    if(sources)
      get_filename_component(family ${folder} NAME)
      tessera_units(units experiment_${family} ${sources})
      tessera_plugin(${family} ${units})
      tessera_compile(experiment_${family} HOST)
      add_dependencies(experiment_${family} build_stamp)
      set_property(GLOBAL APPEND PROPERTY TESSERA_EXPERIMENTS experiment_${family})
    endif()
  endforeach()
endfunction()

# If MPI is found: the transport plugin tessera/transports/mpi.so.
function(tessera_transports)
  find_package(MPI QUIET GLOBAL COMPONENTS C)
  if(NOT MPI_C_FOUND)
    message(STATUS "No MPI: runs of several processes need libopenmpi-dev and openmpi-bin")
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/plugins/mpi/*.cc)
  add_library(tessera_mpi MODULE ${sources} ${TESSERA_PLUGIN_STAMP_SOURCE})
  target_link_libraries(tessera_mpi PRIVATE plugins MPI::MPI_C Threads::Threads)
  target_compile_definitions(tessera_mpi PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  set_target_properties(tessera_mpi PROPERTIES PREFIX "" OUTPUT_NAME mpi
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/tessera/transports
    INSTALL_RPATH "$ORIGIN/../..")
  add_dependencies(tessera_mpi build_stamp)
  set_property(GLOBAL APPEND PROPERTY TESSERA_TRANSPORTS tessera_mpi)
endfunction()

# The target `programs` builds everything that ./runexp and ./flat_tokens need; `transports` and
# `devices` are parts of it.
function(tessera_all_programs)
  get_property(programs GLOBAL PROPERTY TESSERA_PROGRAMS)
  get_property(experiments GLOBAL PROPERTY TESSERA_EXPERIMENTS)
  get_property(transports GLOBAL PROPERTY TESSERA_TRANSPORTS)
  get_property(devices GLOBAL PROPERTY TESSERA_DEVICES)
  add_custom_target(transports DEPENDS ${transports})
  add_custom_target(devices DEPENDS ${devices})
  add_custom_target(programs DEPENDS ${programs} ${experiments} ${transports} ${devices})
endfunction()

# The ctest entries of a test program: its fast tests, and those tagged [full]. Tests tagged
# [levels] and all kernel tests run at each processor level. Tests tagged [slurm] have a separate
# entry, and those tagged [.] are started by others. Tests that the machine cannot run are shown as
# skipped (tests/main.cc).
# TESSERA_DEVICE_TESTS also run on devices of the kind "guarded" (tests/support/guarded_device.cc).
function(tessera_test_entries name)
  set(levels portable avx2 avx512 avx512_bf16 amx)
  set(levelled "[levels]")
  set(plain "~[levels]~[slurm]~[.]")
  if(name STREQUAL "test_core_devices")
    set(levelled "")
  else()
    tessera_test_entry(${name} fast "${plain}~[full]" "")
  endif()
  tessera_test_entry(${name}.full full "${plain}[full]" "")
  if(name IN_LIST TESSERA_DEVICE_TESTS)
    tessera_test_entry(${name}.guarded fast "${plain}~[full]" TESSERA_TEST_DEVICE=guarded)
    tessera_test_entry(${name}.full.guarded full "${plain}[full]" TESSERA_TEST_DEVICE=guarded)
  endif()
  if(name IN_LIST TESSERA_LEVELLED_TESTS)
    foreach(level ${levels})
      tessera_test_entry(${name}.${level} fast "${levelled}~[full]" TESSERA_CPU_LEVEL=${level})
      if(levelled)
        tessera_test_entry(${name}.full.${level} full "${levelled}[full]"
                           TESSERA_CPU_LEVEL=${level})
      endif()
    endforeach()
  endif()
endfunction()

# One entry: the tests of a program to run, and an environment variable to set (NAME=VALUE or
# empty).
function(tessera_test_entry entry label tests variable)
  string(REGEX MATCH "^[^.]+" program ${entry})
  add_test(NAME ${entry} COMMAND ${program} "${tests}" WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${entry} PROPERTIES LABELS ${label} SKIP_RETURN_CODE 77)
  if(variable)
    set_tests_properties(${entry} PROPERTIES ENVIRONMENT "${variable}")
  endif()
endfunction()

# Shared code of all test programs, compiled once: Catch2's main, tests/support and their headers.
function(tessera_test_support)
  find_package(Catch2 QUIET)  # ./runexp does not install it; version 2 has only headers.
  add_library(tessera_test_libraries INTERFACE)
  if(TARGET Catch2::Catch2)
    target_link_libraries(tessera_test_libraries INTERFACE Catch2::Catch2)
  endif()
  target_link_libraries(tessera_test_libraries INTERFACE plugins_runexp core_devices Threads::Threads
                        Tessera::hdf5 ZLIB::ZLIB PkgConfig::libzstd tomlplusplus::tomlplusplus
                        hwy::hwy)
  target_compile_definitions(tessera_test_libraries INTERFACE
                             TESSERA_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             TESSERA_BINARY_DIR="${CMAKE_BINARY_DIR}")
  file(GLOB helpers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/*.cc)
  tessera_units(units tessera_test_support ${helpers})
  add_library(tessera_test_support OBJECT ${units} ${CMAKE_SOURCE_DIR}/tests/main.cc)
  target_link_libraries(tessera_test_support PRIVATE tessera_test_libraries)
  tessera_compile(tessera_test_support HOST)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/main.cc PROPERTIES
                              SKIP_PRECOMPILE_HEADERS ON)
  if(TESSERA_PRECOMPILE)
    tessera_headers(test_headers ${TESSERA_COMMON_HEADERS} <fstream> <random> <sstream> <thread>
                    ${CMAKE_SOURCE_DIR}/tests/support/catch.h)
    # The flags of test programs.
    set_target_properties(test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(test_headers PRIVATE -fPIE $<$<CONFIG:Release>:-O0>)
  endif()
endfunction()

# One Catch2 program per folder of tests, with the folders below it: test_core_graph,
# test_tasks_run and so on.
function(tessera_tests)
  tessera_virtual_gpu()
  set(TESSERA_LEVELLED_TESTS test_core_devices test_experiments test_tasks_run)
  set(TESSERA_DEVICE_TESTS test_core_runtime test_experiments test_tasks_task test_tasks_planner
      test_tasks_run test_tasks_recipes test_tasks_testing)
  tessera_test_support()
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*_test.cc)
  if(NOT TARGET virtual_gpu)
    list(FILTER tests EXCLUDE REGEX "/(virtual_gpu|plugins/cuda)/")
  endif()
  get_property(has_cudnn GLOBAL PROPERTY TESSERA_HAS_CUDNN)
  if(NOT has_cudnn)
    list(FILTER tests EXCLUDE REGEX "/plugins/cuda/cudnn_")
  endif()
  foreach(test ${tests})
    cmake_path(RELATIVE_PATH test BASE_DIRECTORY ${CMAKE_SOURCE_DIR}/tests OUTPUT_VARIABLE relative)
    get_filename_component(folder ${relative} DIRECTORY)
    if(NOT folder)
      set(folder whole)
    endif()
    string(REGEX REPLACE "^([^/]+/[^/]+)/.*" "\\1" folder ${folder})
    string(REPLACE "/" "_" name "test_${folder}")
    list(APPEND files_of_${name} ${test})
    if(NOT TARGET ${name})
      list(APPEND names ${name})
      add_executable(${name} $<TARGET_OBJECTS:tessera_test_support>)
      target_link_libraries(${name} PRIVATE tessera_test_libraries)
      target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0>)
      if(TESSERA_PRECOMPILE)
        target_precompile_headers(${name} REUSE_FROM test_headers)
      endif()
      tessera_test_entries(${name})
    endif()
  endforeach()
  foreach(name ${names})
    tessera_units(units ${name} ${files_of_${name}})
    target_sources(${name} PRIVATE ${units})
  endforeach()
  # Files that are not tests: those of compositions also run as mutants.
  foreach(folder composition mutants)
    file(GLOB helpers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*.cc)
    list(FILTER helpers EXCLUDE REGEX "_test\\.cc$")
    list(APPEND shared ${helpers})
    target_sources(test_${folder} PRIVATE ${shared})
  endforeach()
  add_dependencies(test_inputs_readers readers)
  add_dependencies(test_inputs_flat_tokens readers)
  foreach(name test_inputs_flat_tokens_tool test_tasks_interop)  # Only these run the tool.
    target_link_libraries(${name} PRIVATE inputs_flat_tokens_tool)
  endforeach()
  if(TARGET virtual_gpu)
    include(${CMAKE_SOURCE_DIR}/tests/plugins/cuda/programs.cmake)
  endif()
  include(${CMAKE_SOURCE_DIR}/tests/plugins/fixtures.cmake)
  include(${CMAKE_SOURCE_DIR}/tests/plugins/mpi/programs.cmake)
  include(${CMAKE_SOURCE_DIR}/tests/bench/programs.cmake)
  add_test(NAME out_of_tree
           COMMAND ${CMAKE_SOURCE_DIR}/tests/out_of_tree/run.sh ${CMAKE_BINARY_DIR})
  add_test(NAME new_project
           COMMAND ${CMAKE_SOURCE_DIR}/tests/out_of_tree/new_project.sh $<TARGET_FILE:runexp>)
  set_tests_properties(out_of_tree new_project PROPERTIES LABELS fast)
endfunction()

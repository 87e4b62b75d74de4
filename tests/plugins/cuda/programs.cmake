# SPDX-License-Identifier: Apache-2.0
# The tests of the CUDA device and of the virtual GPU that they run on.
foreach(name test_plugins_cuda test_virtual_gpu)
  if(TARGET ${name})
    target_link_libraries(${name} PRIVATE virtual_gpu)
    set_property(TARGET ${name} APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib/virtual_gpu")
  endif()
endforeach()
if(TARGET test_virtual_gpu)
  set(test_kernels ${CMAKE_BINARY_DIR}/generated/virtual_gpu/test_kernels.fatbin)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/generated/virtual_gpu)
  tessera_fatbin(${test_kernels} ${CMAKE_SOURCE_DIR}/tests/virtual_gpu/test_kernels.cu PTX_ONLY)
  target_sources(test_virtual_gpu PRIVATE ${test_kernels} $<TARGET_OBJECTS:plugins_cuda>)
  target_link_libraries(test_virtual_gpu PRIVATE plugins_cuda)
endif()
if(TARGET test_plugins_cuda)
  target_sources(test_plugins_cuda PRIVATE $<TARGET_OBJECTS:plugins_cuda>)
  foreach(helper gpu_communicator kept_compilations kernel_launches machine_code product_trial)
    target_sources(test_plugins_cuda PRIVATE ${CMAKE_SOURCE_DIR}/tests/plugins/cuda/${helper}.cc)
  endforeach()
  target_link_libraries(test_plugins_cuda PRIVATE plugins_cuda)
  # The stand-ins for cuBLASLt and NCCL compute on the memory of the virtual GPU.
  set(stand_ins fake_cublaslt fake_nccl)
  get_target_property(includes plugins_cuda INTERFACE_INCLUDE_DIRECTORIES)
  find_file(nvtx nvtx3/nvToolsExt.h PATHS ${includes} NO_DEFAULT_PATH NO_CACHE)
  if(nvtx)
    list(APPEND stand_ins fake_profiler)
  endif()
  foreach(library ${stand_ins})
    add_library(${library} MODULE ${CMAKE_SOURCE_DIR}/tests/plugins/cuda/${library}.cc)
    target_link_libraries(${library} PRIVATE virtual_gpu fmt::fmt)
    set_target_properties(${library} PROPERTIES PREFIX "" INSTALL_RPATH "$ORIGIN"
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/virtual_gpu)
  endforeach()
  # What NVRTC compiled in an earlier run of the tests.
  find_library(nvrtc nvrtc PATHS ${includes} PATH_SUFFIXES ../lib64 ../lib NO_DEFAULT_PATH NO_CACHE)
  if(nvrtc)
    file(REAL_PATH ${nvrtc} nvrtc)
    add_library(nvrtc_cache MODULE ${CMAKE_SOURCE_DIR}/tests/plugins/cuda/nvrtc_cache.cc)
    target_include_directories(nvrtc_cache SYSTEM PRIVATE ${includes})
    target_compile_definitions(nvrtc_cache PRIVATE TESSERA_BINARY_DIR="${CMAKE_BINARY_DIR}"
                               TESSERA_NVRTC_FILE="${nvrtc}")
    target_link_libraries(nvrtc_cache PRIVATE ${CMAKE_DL_LIBS})
    set_target_properties(nvrtc_cache PROPERTIES PREFIX ""
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/virtual_gpu)
    add_dependencies(test_plugins_cuda nvrtc_cache)
  endif()
  add_library(failing_driver MODULE ${CMAKE_SOURCE_DIR}/tests/plugins/cuda/failing_driver.cc)
  target_include_directories(failing_driver SYSTEM PRIVATE ${includes})
  target_include_directories(failing_driver PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(failing_driver PRIVATE TESSERA_BINARY_DIR="${CMAKE_BINARY_DIR}")
  target_link_libraries(failing_driver PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(failing_driver PROPERTIES PREFIX ""
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/virtual_gpu)
  add_dependencies(test_plugins_cuda failing_driver tessera_cuda runexp experiment_quickstart
                   experiment_bench gpu_check ${stand_ins})
  if(TARGET tessera_mpi)
    add_dependencies(test_plugins_cuda tessera_mpi)
  endif()
  get_property(has_cudnn GLOBAL PROPERTY TESSERA_HAS_CUDNN)
  if(has_cudnn)
    # A stand-in for cuDNN, and plans by the real one, in a process with another stand-in driver.
    add_library(fake_cudnn MODULE ${CMAKE_SOURCE_DIR}/tests/plugins/cuda/fake_cudnn.cc)
    target_link_libraries(fake_cudnn PRIVATE virtual_gpu)
    target_include_directories(fake_cudnn SYSTEM PRIVATE ${TESSERA_CUDNN_INCLUDE})
    set_target_properties(fake_cudnn PROPERTIES PREFIX "" INSTALL_RPATH "$ORIGIN"
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/virtual_gpu)
    add_library(planning_driver SHARED ${CMAKE_SOURCE_DIR}/tests/plugins/cuda/planning_driver.cc)
    set_target_properties(planning_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/planning_driver)
    add_executable(cudnn_plans ${CMAKE_SOURCE_DIR}/tests/plugins/cuda/main_cudnn_plans.cc
                               $<TARGET_OBJECTS:plugins_cuda>)
    target_link_libraries(cudnn_plans PRIVATE plugins_cuda)
    # The plans of every experiment.
    get_property(experiments GLOBAL PROPERTY TESSERA_EXPERIMENTS)
    add_dependencies(test_plugins_cuda fake_cudnn planning_driver cudnn_plans ${experiments})
  endif()
  set_property(TEST test_plugins_cuda PROPERTY ENVIRONMENT
               "TESSERA_CUDA_DRIVER=${CMAKE_BINARY_DIR}/lib/virtual_gpu/libcuda.so.1")
  if(TESSERA_SANITIZE MATCHES "address")  # cuDNN and Open MPI do not free what they allocate.
    set_property(TEST test_plugins_cuda APPEND PROPERTY ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
  endif()
endif()
get_property(nvrtc GLOBAL PROPERTY TESSERA_NVRTC)
if(nvrtc)
  add_test(NAME gpu_check_archive
           COMMAND ${CMAKE_SOURCE_DIR}/tests/out_of_tree/gpu_check_archive.sh ${CMAKE_BINARY_DIR} ${nvrtc})
  set_tests_properties(gpu_check_archive PROPERTIES LABELS full SKIP_RETURN_CODE 77)
endif()

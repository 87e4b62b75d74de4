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
  target_sources(test_virtual_gpu PRIVATE ${test_kernels})
endif()
if(TARGET test_plugins_cuda)
  target_sources(test_plugins_cuda PRIVATE $<TARGET_OBJECTS:plugins_cuda>)
  target_link_libraries(test_plugins_cuda PRIVATE plugins_cuda)
  target_sources(test_plugins_cuda PRIVATE ${CMAKE_SOURCE_DIR}/tests/plugins/cuda/product_trial.cc
                 ${CMAKE_SOURCE_DIR}/tests/plugins/cuda/gpu_communicator.cc)
  # The stand-ins for cuBLASLt and NCCL compute on the memory of the virtual GPU.
  foreach(library fake_cublaslt fake_nccl)
    add_library(${library} MODULE ${CMAKE_SOURCE_DIR}/tests/plugins/cuda/${library}.cc)
    target_link_libraries(${library} PRIVATE virtual_gpu fmt::fmt)
    set_target_properties(${library} PROPERTIES PREFIX "" INSTALL_RPATH "$ORIGIN"
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/virtual_gpu)
  endforeach()
  add_dependencies(test_plugins_cuda tessera_cuda runexp experiment_quickstart
                   fake_cublaslt fake_nccl)
  if(TARGET tessera_mpi)
    add_dependencies(test_plugins_cuda tessera_mpi)
  endif()
  set_property(TEST test_plugins_cuda PROPERTY ENVIRONMENT
               "TESSERA_CUDA_DRIVER=${CMAKE_BINARY_DIR}/lib/virtual_gpu/libcuda.so.1")
endif()

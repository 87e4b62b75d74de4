# SPDX-License-Identifier: Apache-2.0
# The tests of the CUDA device and of the virtual GPU that they run on.
foreach(name test_plugins_cuda test_virtual_gpu)
  if(TARGET ${name})
    target_link_libraries(${name} PRIVATE virtual_gpu)
    set_property(TARGET ${name} APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib/virtual_gpu")
  endif()
endforeach()
if(TARGET test_plugins_cuda)
  target_sources(test_plugins_cuda PRIVATE $<TARGET_OBJECTS:plugins_cuda>)
  target_link_libraries(test_plugins_cuda PRIVATE plugins_cuda)
  add_dependencies(test_plugins_cuda tessera_cuda)
  set_property(TEST test_plugins_cuda PROPERTY ENVIRONMENT
               "TESSERA_CUDA_DRIVER=${CMAKE_BINARY_DIR}/lib/virtual_gpu/libcuda.so.1")
endif()

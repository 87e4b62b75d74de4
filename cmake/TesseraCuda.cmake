# SPDX-License-Identifier: Apache-2.0
# Where nvcc is found: the device plugin tessera/devices/cuda.so. It needs the toolkit's headers
# only; the driver and NVIDIA's libraries are loaded at run time.
set(TESSERA_CUDA AUTO CACHE STRING "Build the CUDA device: AUTO (where nvcc is found), ON or OFF")
set(TESSERA_CUDA_ARCHITECTURES "80;90a;100a;120a" CACHE STRING
    "GPUs to compile kernels for; those that nvcc does not know are left out. PTX for compute_80 is always there")

# Sets TESSERA_NVCC, or leaves it false.
function(tessera_find_nvcc)
  if(TESSERA_CUDA STREQUAL "OFF")
    set(TESSERA_NVCC FALSE PARENT_SCOPE)
    return()
  endif()
  find_program(TESSERA_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(NOT TESSERA_NVCC)
    if(TESSERA_CUDA STREQUAL "ON")
      message(FATAL_ERROR "TESSERA_CUDA=ON needs nvcc, which was not found; install the CUDA toolkit (12.4 or newer) or set CUDA_HOME")
    endif()
    message(STATUS "No nvcc: --device=cuda needs the CUDA toolkit 12.4 or newer")
  endif()
endfunction()

# Sets the global property TESSERA_HAS_CUDNN if there is cudnn.h of cuDNN 9.8 or newer, in the folder
# TESSERA_CUDNN_INCLUDE.
function(tessera_find_cudnn toolkit_include)
  find_path(TESSERA_CUDNN_INCLUDE cudnn_graph.h HINTS $ENV{CUDA_HOME}/include ${toolkit_include}
            DOC "The folder of cudnn.h, for attention by cuDNN")
  if(TESSERA_CUDNN_INCLUDE)
    file(STRINGS ${TESSERA_CUDNN_INCLUDE}/cudnn_graph.h found REGEX CUDNN_ATTR_DEVICEPROP_HANDLE)
  endif()
  if(found)
    set_property(GLOBAL PROPERTY TESSERA_HAS_CUDNN TRUE)
  else()
    message(STATUS "No cudnn.h of cuDNN 9.8 or newer: attention on GPUs is by our own kernels only")
  endif()
endfunction()

# Sets TESSERA_GPU_TARGETS, the options of nvcc for those of TESSERA_CUDA_ARCHITECTURES that it
# knows. The front end, which takes most of the time, runs once: machine code of all architectures is
# made from the PTX for compute_80. Kernels have no branches on __CUDA_ARCH__; for sm_80 and sm_90a
# the machine code is the same as that of separate compilations. An nvcc that refuses this
# combination compiles for that architecture alone.
function(tessera_gpu_targets)
  set(targets "")
  foreach(architecture ${TESSERA_CUDA_ARCHITECTURES})
    foreach(front 80 ${architecture})
      set(target -gencode arch=compute_${front},code=sm_${architecture})
      execute_process(COMMAND ${TESSERA_NVCC} --dryrun ${target} --fatbin -x cu /dev/null
                      RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
      if(NOT refused)
        list(APPEND targets ${target})
        break()
      endif()
    endforeach()
  endforeach()
  set(TESSERA_GPU_TARGETS ${targets} PARENT_SCOPE)
endfunction()

# tessera_fatbin(OUTPUT SOURCE [PTX_ONLY]): compiles one kernel file to plain PTX and, unless
# PTX_ONLY, to machine code (TESSERA_GPU_TARGETS).
function(tessera_fatbin output source)
  cmake_parse_arguments(ARG "PTX_ONLY" "" "" ${ARGN})
  set(targets -gencode arch=compute_80,code=compute_80)
  if(NOT ARG_PTX_ONLY)
    list(APPEND targets ${TESSERA_GPU_TARGETS})
  endif()
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE relative)
  # -c is for ccache, which knows no other way to compile. The virtual GPU of the tests reads the
  # PTX, so it is not compressed.
  add_custom_command(OUTPUT ${output} DEPENDS ${source} DEPFILE ${output}.d
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${TESSERA_NVCC} -c --fatbin -std=c++20 --expt-relaxed-constexpr
            -I${CMAKE_SOURCE_DIR} -lineinfo --no-compress -Wno-deprecated-gpu-targets ${targets}
            -MD -MF ${output}.d -o ${output} ${source}
    COMMENT "Compiling ${relative} for GPUs" VERBATIM)
endfunction()

# Writes `output`, the table kernel_images() of plugins/cuda/device/images.h.
function(tessera_kernel_images output)
  set(declarations "")
  set(rows "")
  foreach(fatbin ${ARGN})
    cmake_path(GET fatbin STEM name)
    string(APPEND declarations
      "asm(\".pushsection .rodata\\n.balign 64\\n.globl tessera_cuda_${name}\\n.hidden tessera_cuda_${name}\\ntessera_cuda_${name}:\\n\"\n    \".incbin \\\"${fatbin}\\\"\\n.popsection\\n\");\nextern \"C\" __attribute__((visibility(\"hidden\"))) const unsigned char tessera_cuda_${name}[];\n")
    string(APPEND rows "    {\"${name}\", tessera_cuda_${name}},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${output} CONTENT
"// Made by cmake/TesseraCuda.cmake.
#include \"plugins/cuda/device/images.h\"
${declarations}
namespace tessera::cuda {
std::span<const Image> kernel_images() {
  static const Image images[] = {
${rows}  };
  return images;
}
}  // namespace tessera::cuda
" @ONLY)
  set_source_files_properties(${output} PROPERTIES OBJECT_DEPENDS "${ARGN}")
endfunction()

function(tessera_cuda)
  tessera_find_nvcc()
  if(NOT TESSERA_NVCC)
    return()
  endif()
  tessera_gpu_targets()
  get_filename_component(toolkit ${TESSERA_NVCC} REALPATH)
  cmake_path(GET toolkit PARENT_PATH toolkit)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/plugins/cuda/*.cu)
  set(fatbins "")
  foreach(kernel ${kernels})
    cmake_path(GET kernel STEM name)
    set(fatbin ${CMAKE_BINARY_DIR}/generated/cuda/${name}.fatbin)
    tessera_fatbin(${fatbin} ${kernel})
    list(APPEND fatbins ${fatbin})
  endforeach()
  set(images ${CMAKE_BINARY_DIR}/generated/cuda/images.cc)
  tessera_kernel_images(${images} ${fatbins})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/plugins/cuda/*.cc)
  list(FILTER sources EXCLUDE REGEX "/plugins/cuda/check/")
  tessera_find_cudnn(${toolkit}/../include)
  get_property(has_cudnn GLOBAL PROPERTY TESSERA_HAS_CUDNN)
  if(NOT has_cudnn)
    list(FILTER sources EXCLUDE REGEX "/cudnn_[a-z_]+\\.cc$")
  endif()
  tessera_units(units plugins_cuda ${sources})
  # The plugin, and the tests of its parts.
  add_library(plugins_cuda OBJECT ${units} ${images})
  set_target_properties(plugins_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(plugins_cuda SYSTEM PUBLIC ${toolkit}/../include)
  if(has_cudnn)
    target_include_directories(plugins_cuda SYSTEM PUBLIC ${TESSERA_CUDNN_INCLUDE})
    target_compile_definitions(plugins_cuda PUBLIC TESSERA_HAS_CUDNN)
  endif()
  target_link_libraries(plugins_cuda PUBLIC plugins Threads::Threads ${CMAKE_DL_LIBS})
  tessera_compile(plugins_cuda HOST)
  add_dependencies(plugins_cuda build_stamp)
  add_library(tessera_cuda MODULE $<TARGET_OBJECTS:plugins_cuda> ${TESSERA_PLUGIN_STAMP_SOURCE})
  target_link_libraries(tessera_cuda PRIVATE plugins_cuda)
  set_target_properties(tessera_cuda PROPERTIES PREFIX "" OUTPUT_NAME cuda
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/tessera/devices
    INSTALL_RPATH "$ORIGIN/../..")
  add_dependencies(tessera_cuda build_stamp)
  set_property(GLOBAL APPEND PROPERTY TESSERA_DEVICES tessera_cuda)
  # The program gpu_check, which registers the device itself: it needs no plugin of a device.
  file(GLOB check CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/plugins/cuda/check/*.cc)
  tessera_units(check_units gpu_check ${check})
  add_executable(gpu_check $<TARGET_OBJECTS:plugins_cuda> ${check_units})
  target_link_libraries(gpu_check PRIVATE plugins_cuda plugins_runexp)
  tessera_compile(gpu_check HOST)
  target_compile_options(gpu_check PRIVATE -fPIC)  # As the precompiled header.
  add_dependencies(gpu_check experiment_quickstart experiment_bench experiment_c4)  # It runs them.
  set_property(GLOBAL APPEND PROPERTY TESSERA_PROGRAMS gpu_check)
  # An archive of it for machines without toolkit and build: build/…/gpu_check-VERSION-x86_64.tar.gz.
  # Libraries of the archive find each other by the run path of the program, unlike by a RUNPATH.
  target_link_options(gpu_check PRIVATE -Wl,--disable-new-dtags)
  file(GLOB nvrtc ${toolkit}/../lib/libnvrtc.so.[0-9][0-9] ${toolkit}/../lib64/libnvrtc.so.[0-9][0-9])
  if(nvrtc)
    list(GET nvrtc 0 nvrtc)
  endif()
  set_property(GLOBAL PROPERTY TESSERA_NVRTC ${nvrtc})
  add_custom_target(gpu_check_archive DEPENDS gpu_check COMMAND ${CMAKE_COMMAND}
    -DBUILD=${CMAKE_BINARY_DIR} -DNVRTC=${nvrtc}
    -DOUTPUT=${CMAKE_BINARY_DIR}/gpu_check-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR}.tar.gz
    -P ${CMAKE_SOURCE_DIR}/cmake/GpuCheckArchive.cmake VERBATIM)
endfunction()

# The stand-in driver of the tests (tests/virtual_gpu): build/…/lib/virtual_gpu/libcuda.so.1.
function(tessera_virtual_gpu)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/virtual_gpu/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(NOT TARGET plugins_cuda OR NOT sources)
    return()
  endif()
  add_library(virtual_gpu SHARED ${sources})
  target_include_directories(virtual_gpu SYSTEM PUBLIC
                             $<TARGET_PROPERTY:plugins_cuda,INTERFACE_INCLUDE_DIRECTORIES>)
  target_include_directories(virtual_gpu PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(virtual_gpu PRIVATE fmt::fmt Threads::Threads)
  # The tests run millions of instructions on it. It uses the instructions of this machine, if those
  # are the usual ones; products and sums are rounded one by one all the same.
  target_compile_options(virtual_gpu PRIVATE -O3 -fno-semantic-interposition -ffp-contract=off
                         -fno-math-errno)
  include(CheckCXXSourceRuns)
  check_cxx_source_runs("int main() { return !(__builtin_cpu_supports(\"avx2\") &&
    __builtin_cpu_supports(\"fma\") && __builtin_cpu_supports(\"bmi2\")); }" TESSERA_HAS_X86_64_V3)
  if(TESSERA_HAS_X86_64_V3)
    target_compile_options(virtual_gpu PRIVATE -march=x86-64-v3)
  endif()
  set_target_properties(virtual_gpu PROPERTIES OUTPUT_NAME cuda SOVERSION 1
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/virtual_gpu)
endfunction()

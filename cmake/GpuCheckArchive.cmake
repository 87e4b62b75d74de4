# SPDX-License-Identifier: Apache-2.0
# cmake -DBUILD=… -DNVRTC=… -DOUTPUT=FILE.tar.gz -P GpuCheckArchive.cmake: packs gpu_check with all
# that it needs on a machine with NVIDIA's driver, but without toolkit and build: our libraries and
# plugins, the hardware files, the libraries of other packages, and NVRTC (the file NVRTC and its
# builtins, which NVIDIA permits to pass on), which compiles elementwise kernels. Of the system only
# glibc is used, of this version or a newer one.
cmake_path(GET OUTPUT PARENT_PATH work)
cmake_path(GET OUTPUT FILENAME name)
string(REGEX REPLACE "\\.tar\\.gz$" "" name "${name}")
set(root ${work}/${name})
file(REMOVE_RECURSE ${root})
set(plugins "")
foreach(family quickstart bench c4)
  list(APPEND plugins ${BUILD}/lib/tessera/experiments/${family}.so)
endforeach()
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${BUILD}/bin/gpu_check LIBRARIES ${plugins}
     RESOLVED_DEPENDENCIES_VAR libraries
     POST_EXCLUDE_REGEXES "/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv))\\.so[^/]*$")
file(INSTALL ${BUILD}/bin/gpu_check DESTINATION ${root}/bin USE_SOURCE_PERMISSIONS)
file(INSTALL ${plugins} DESTINATION ${root}/lib/tessera/experiments)
file(GLOB hardware ${BUILD}/lib/tessera/hardware/*.toml)
file(INSTALL ${hardware} DESTINATION ${root}/lib/tessera/hardware)
if(NVRTC)
  cmake_path(GET NVRTC PARENT_PATH toolkit)
  file(GLOB builtins ${toolkit}/libnvrtc-builtins.so.*)
  list(APPEND libraries ${NVRTC} ${builtins})
endif()
foreach(library ${libraries})
  # Under the name that programs load, not as a link.
  cmake_path(GET library FILENAME file)
  file(REAL_PATH ${library} from)
  file(COPY_FILE ${from} ${root}/lib/${file})
endforeach()
file(CREATE_LINK bin/gpu_check ${root}/gpu_check SYMBOLIC)
execute_process(COMMAND tar -czf ${OUTPUT} -C ${work} --owner=0 --group=0 ${name}
                COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${root})
message(STATUS "Wrote ${OUTPUT}")

# SPDX-License-Identifier: Apache-2.0
# `cmake --install` installs a package for find_package(Tessera): programs, libraries, headers,
# tessera_plugin(), Tessera's experiments as plugins, and the hardware files.
include(CMakePackageConfigHelpers)

get_property(folders GLOBAL PROPERTY TESSERA_FOLDERS)
get_property(programs GLOBAL PROPERTY TESSERA_PROGRAMS)
get_property(experiments GLOBAL PROPERTY TESSERA_EXPERIMENTS)
get_property(transports GLOBAL PROPERTY TESSERA_TRANSPORTS)
get_property(devices GLOBAL PROPERTY TESSERA_DEVICES)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)

install(TARGETS ${folders} EXPORT TesseraTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera)
install(TARGETS ${programs} EXPORT TesseraTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS ${experiments} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera/experiments)
if(transports)
  install(TARGETS ${transports} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera/transports)
endif()
if(devices)
  install(TARGETS ${devices} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera/devices)
endif()
if(TARGET tessera_arrow)
  install(TARGETS tessera_arrow LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera/readers)
endif()
install(DIRECTORY hardware DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera FILES_MATCHING PATTERN "*.toml")
install(DIRECTORY core layers inputs tasks plugins
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera FILES_MATCHING PATTERN "*.h"
        PATTERN "*_internal.h" EXCLUDE PATTERN "*-inl.h" EXCLUDE
        PATTERN "flat_tokens_tool" EXCLUDE PATTERN "cuda" EXCLUDE)
install(FILES ${CMAKE_BINARY_DIR}/generated/tessera_stamp.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera)
install(FILES cmake/plugin_stamp.cc DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${package})

set(TESSERA_SHARE ${CMAKE_INSTALL_DATADIR}/tessera)
configure_package_config_file(cmake/TesseraConfig.cmake.in ${CMAKE_BINARY_DIR}/TesseraConfig.cmake
                              INSTALL_DESTINATION ${package} PATH_VARS TESSERA_SHARE)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TesseraConfig.cmake
              ${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake cmake/TesseraPlugin.cmake
        DESTINATION ${package})

# Where programs of the build folder look for them: the tree's own, so that edits count at once.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib/tessera)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/hardware ${CMAKE_BINARY_DIR}/lib/tessera/hardware SYMBOLIC)

# The build folder is such a package too: a project of `runexp new` needs no installation.
set(here ${CMAKE_BINARY_DIR}/lib/cmake/Tessera)
set(TESSERA_SHARE ${CMAKE_SOURCE_DIR}/cmake)
configure_package_config_file(cmake/TesseraConfig.cmake.in ${here}/TesseraConfig.cmake
                              INSTALL_DESTINATION ${here} PATH_VARS TESSERA_SHARE)
configure_file(${CMAKE_BINARY_DIR}/TesseraConfigVersion.cmake ${here} COPYONLY)
configure_file(cmake/TesseraPlugin.cmake ${here} COPYONLY)
export(EXPORT TesseraTargets NAMESPACE Tessera:: FILE ${here}/TesseraTargets.cmake)

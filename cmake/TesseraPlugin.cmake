# SPDX-License-Identifier: Apache-2.0
# tessera_plugin(<family> <source>...): a plugin with the experiments of one family, <family>.so, in
# tessera/experiments of the library folder. Used for experiments/ and, through
# find_package(Tessera), by users' projects.
function(tessera_plugin family)
  add_library(experiment_${family} MODULE ${ARGN} ${TESSERA_PLUGIN_STAMP_SOURCE})
  target_link_libraries(experiment_${family} PRIVATE Tessera::plugins)
  set_target_properties(experiment_${family} PROPERTIES PREFIX "" OUTPUT_NAME ${family} DEFINE_SYMBOL ""
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/tessera/experiments
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON INSTALL_RPATH "$ORIGIN/../..")
endfunction()

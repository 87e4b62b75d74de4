# SPDX-License-Identifier: Apache-2.0
# Small valid and invalid plugins that the tests in tests/plugins load.
set(TESSERA_FIXTURES ${CMAKE_BINARY_DIR}/fixtures)
function(tessera_fixture name folder)
  add_library(fixture_${name} MODULE ${CMAKE_SOURCE_DIR}/tests/plugins/fixtures/${name}.cc ${ARGN})
  target_link_libraries(fixture_${name} PRIVATE plugins)
  add_dependencies(fixture_${name} build_stamp)
  add_dependencies(test_plugins fixture_${name})
  set_target_properties(fixture_${name} PROPERTIES PREFIX "" OUTPUT_NAME ${name}
                        LIBRARY_OUTPUT_DIRECTORY ${TESSERA_FIXTURES}/${folder})
endfunction()

tessera_fixture(zoo good ${TESSERA_PLUGIN_STAMP_SOURCE})
tessera_fixture(farm good ${TESSERA_PLUGIN_STAMP_SOURCE})
tessera_fixture(twin twin ${TESSERA_PLUGIN_STAMP_SOURCE})
tessera_fixture(hollow hollow ${TESSERA_PLUGIN_STAMP_SOURCE})
tessera_fixture(thrower thrower ${TESSERA_PLUGIN_STAMP_SOURCE})
tessera_fixture(stale stale)

# A device type.
add_library(fixture_guarded MODULE ${CMAKE_SOURCE_DIR}/tests/support/guarded_device.cc
            ${TESSERA_PLUGIN_STAMP_SOURCE})
target_link_libraries(fixture_guarded PRIVATE plugins)
add_dependencies(fixture_guarded build_stamp)
add_dependencies(test_plugins fixture_guarded)
set_target_properties(fixture_guarded PROPERTIES PREFIX "" OUTPUT_NAME guarded
                      LIBRARY_OUTPUT_DIRECTORY ${TESSERA_FIXTURES}/devices)

# A device type with a wrong kernel.
tessera_fixture(wrong wrong ${TESSERA_PLUGIN_STAMP_SOURCE})
add_dependencies(test_plugins_replay fixture_wrong)

# The tests run the program with the plugins of this project.
add_dependencies(test_plugins programs)
add_dependencies(test_plugins_replay runexp experiment_quickstart devices)
add_dependencies(test_plugins_refit runexp experiment_quickstart devices)

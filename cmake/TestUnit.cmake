# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=… -DOUTPUT=… -DTESTS=FILE|FILE -P TestUnit.cmake: writes one file with several
# tests. Their anonymous namespaces are named after the files, so that names do not collide.
string(REPLACE "|" ";" TESTS ${TESTS})
file(WRITE ${OUTPUT} "// Made by cmake/TestUnit.cmake.\n")
foreach(test ${TESTS})
  file(READ ${ROOT}/${test} text)
  string(FIND "${text}" "\nnamespace tessera" begin)
  string(SUBSTRING "${text}" 0 ${begin} includes)
  string(SUBSTRING "${text}" ${begin} -1 tests)
  string(REGEX REPLACE "[/.]" "_" name ${test})
  string(REPLACE "\nnamespace {\n" "\nnamespace ${name} {\n" tests "${tests}")
  file(APPEND ${OUTPUT} "#line 1 \"${test}\"\n${includes}${tests}")
endforeach()

# SPDX-License-Identifier: Apache-2.0
# The files that `runexp new` writes: those of cmake/new_project, compiled into a target so that
# every runexp has them, installed or not (plugins/new_project.h).
function(tessera_new_project target)
  set(folder ${CMAKE_SOURCE_DIR}/cmake/new_project)
  file(GLOB names CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*)
  set(entries "")
  foreach(name ${names})
    file(READ ${folder}/${name} text)
    string(APPEND entries "    {\"${name}\", R\"file(${text})file\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${name})
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/generated/new_project_files.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Made by cmake/NewProject.cmake.
#include \"plugins/new_project.h\"

namespace tessera {

std::vector<NewProjectFile> new_project_files() {
  return {
${entries}  };
}

}  // namespace tessera
" @ONLY)
  target_sources(${target} PRIVATE ${source})
endfunction()

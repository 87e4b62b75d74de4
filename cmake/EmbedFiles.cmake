# SPDX-License-Identifier: Apache-2.0
# tessera_embed(TARGET FOLDER HEADER FUNCTION): compiles the files of a folder into a target,
# so that its programs have them, installed or not. HEADER declares tessera::FUNCTION(), which
# returns their texts by their names.
function(tessera_embed target folder header function)
  set(folder ${CMAKE_SOURCE_DIR}/${folder})
  file(GLOB names CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*)
  set(entries "")
  foreach(name ${names})
    file(READ ${folder}/${name} text)
    string(APPEND entries "    {\"${name}\", R\"file(${text})file\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${name})
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/generated/${function}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Made by cmake/EmbedFiles.cmake.
#include \"${header}\"

namespace tessera {

std::map<std::string_view, std::string_view> ${function}() {
  return {
${entries}  };
}

}  // namespace tessera
" @ONLY)
  target_sources(${target} PRIVATE ${source})
endfunction()

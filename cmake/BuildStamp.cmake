# SPDX-License-Identifier: Apache-2.0
# Run by the build (cmake -P): writes OUTPUT, the stamp in every plugin, from VERSION and the
# contents of all public headers under ROOT. It detects plugins that were built with other headers.
set(text "")
foreach(folder core layers inputs tasks plugins)
  file(GLOB_RECURSE headers RELATIVE ${ROOT} ${ROOT}/${folder}/*.h)
  list(SORT headers)
  foreach(header ${headers})
    file(SHA256 ${ROOT}/${header} hash)
    string(APPEND text "${header} ${hash}\n")
  endforeach()
endforeach()
string(SHA256 hash "${text}")
string(SUBSTRING ${hash} 0 12 hash)
file(WRITE ${OUTPUT}.new "// SPDX-License-Identifier: Apache-2.0
// Made by cmake/BuildStamp.cmake: which build this is; plugins carry it (plugins/loader.h).
#pragma once

#include <string_view>

namespace tessera {

inline constexpr std::string_view kVersion = \"${VERSION}\";
inline constexpr std::string_view kStampMarker = \"tessera-plugin-stamp:\";
// What changes the layout of objects or the names of functions beside the headers.
#define TESSERA_STAMP_TEXT(number) #number
#define TESSERA_STAMP_NUMBER(number) TESSERA_STAMP_TEXT(number)
#if defined(_LIBCPP_VERSION)
#define TESSERA_STAMP_LIBRARY \", libc++ \" TESSERA_STAMP_NUMBER(_LIBCPP_VERSION)
#else
#define TESSERA_STAMP_LIBRARY \\
  \", libstdc++ \" TESSERA_STAMP_NUMBER(_GLIBCXX_RELEASE) \" ABI \" TESSERA_STAMP_NUMBER(_GLIBCXX_USE_CXX11_ABI)
#endif
#if defined(_GLIBCXX_DEBUG)
#define TESSERA_STAMP_DEBUG \", _GLIBCXX_DEBUG\"
#else
#define TESSERA_STAMP_DEBUG \"\"
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TESSERA_STAMP_SANITIZER \", address sanitizer\"
#elif defined(__SANITIZE_THREAD__)
#define TESSERA_STAMP_SANITIZER \", thread sanitizer\"
#else
#define TESSERA_STAMP_SANITIZER \"\"
#endif
inline constexpr char kPluginStamp[] =
    \"tessera-plugin-stamp:${VERSION}, interface ${hash}, compiler \" __VERSION__ TESSERA_STAMP_LIBRARY
    TESSERA_STAMP_DEBUG TESSERA_STAMP_SANITIZER;

}  // namespace tessera
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUTPUT}.new)

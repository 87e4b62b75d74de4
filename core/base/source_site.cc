// SPDX-License-Identifier: Apache-2.0
#include "core/base/source_site.h"

#include <concepts>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace tessera {
namespace {

struct MadeInPair {
  template <typename T>
  requires std::same_as<T, int>
  constexpr MadeInPair(T, std::source_location where = std::source_location::current())
      : file(where.file_name()) {}
  std::string_view file;
};

// The folder that the C++ library's headers are in: "/usr/include/c++/12/".
std::string_view library_folder() {
  static const std::string_view folder = [] {
    const std::string_view header =
        std::pair<int, MadeInPair>(0, 0).second.file;  // …/bits/stl_pair.h
    const size_t inner = header.rfind('/');
    return header.substr(0, header.rfind('/', inner == header.npos ? inner : inner - 1) + 1);
  }();
  return folder;
}

}  // namespace

SourceSite SourceSite::current(std::source_location where) {
  const bool is_of_library = library_folder().size() > 1 &&
                             std::string_view(where.file_name()).starts_with(library_folder());
  return is_of_library ? SourceSite{} : SourceSite{where.file_name(), where.line()};
}

std::string SourceSite::text() const { return known() ? fmt::format("{}:{}", file, line) : ""; }

}  // namespace tessera

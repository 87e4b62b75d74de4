// SPDX-License-Identifier: Apache-2.0
#include "core/io/user_path.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "core/base/error.h"

namespace tessera {
namespace {

// The scheme of a URL; "" if the text is none.
std::string_view scheme_of(std::string_view text) {
  const size_t end = text.find("://");
  if (end == std::string_view::npos || end == 0) return "";
  const std::string_view scheme = text.substr(0, end);
  const auto may_be = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '-' || c == '.';
  };
  const bool begins = std::isalpha(static_cast<unsigned char>(scheme[0])) != 0;
  return begins && std::ranges::all_of(scheme, may_be) ? scheme : "";
}

std::string_view copy_command(std::string_view scheme) {
  if (scheme == "gs") return "gcloud storage cp";
  if (scheme == "s3") return "aws s3 cp";
  if (scheme == "hf") return "hf download";
  if (scheme == "http" || scheme == "https") return "curl -LO";
  return "";
}

}  // namespace

std::string user_path(std::string_view path, std::string_view what) {
  if (const std::string_view scheme = scheme_of(path); !scheme.empty()) {
    const std::string_view command = copy_command(scheme);
    fail("{} {}: {}:// is not a path of this machine, and only those are read and written; {}",
         what, path, scheme,
         scheme == "file" ? "give the path after file://"
         : command.empty()
             ? "copy the data, or mount it and give its path here"
             : fmt::format("copy the data ({}), or mount it and give its path here", command));
  }
  if (path != "~" && !path.starts_with("~/")) return std::string(path);
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    fail("{} {}: there is no home directory, because HOME is not set; give the whole path", what,
         path);
  return home + std::string(path.substr(1));
}

}  // namespace tessera

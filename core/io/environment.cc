// SPDX-License-Identifier: Apache-2.0
#include "core/io/environment.h"

#include <cstdlib>

#include "core/base/error.h"
#include "core/io/http.h"

namespace tessera {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

double environment_number(const char* name, double fallback, std::string_view what) {
  const std::string text = environment(name);
  if (text.empty()) return fallback;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(number >= 0) || number > 9e18)
    fail("{}={}: expected a number of {}, such as 300 or 20e9", name, text, what);
  return number;
}

std::string user_path(std::string_view path, std::string_view what) {
  refuse_secret(path);
  if (const std::string_view scheme = url_scheme(path); !scheme.empty())
    fail(
        "{} {}: {}:// is not a path of this machine, and only those are accepted here; copy the "
        "data (gcloud storage cp, aws s3 cp, hf download, curl -O), or mount it and give its path",
        what, path, scheme);
  if (!path.starts_with('~')) return std::string(path);
  if (path != "~" && !path.starts_with("~/"))
    fail(
        "{} {}: only ~/ is expanded, not the home of another user; write that path, or ./{} for a "
        "file of this name",
        what, path, path);
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    fail("{} {}: HOME is not set, so ~ has no meaning; give the whole path", what, path);
  return home + std::string(path.substr(1));
}

}  // namespace tessera

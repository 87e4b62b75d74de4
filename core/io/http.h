// SPDX-License-Identifier: Apache-2.0
// A client for HTTP: one request, one reply, within a time limit. No redirects, no cookies.
// Connections are kept and used again.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace tessera {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  HttpHeaders headers;
  std::string body;
  double timeout_seconds = 30.0;  // For all of it; 0: no limit.
  // Not one that the server may just have closed: libcurl would send the request twice.
  bool new_connection = false;
  // Asked at least once a second, with the seconds since the last byte; may be empty.
  std::function<bool(double still)> is_cancelled;
  // Gets the body of a reply of status 2xx piece by piece, in place of HttpReply::body; may be
  // empty. Returns whether the transfer goes on.
  std::function<bool(int status, std::string_view piece)> on_body;
};

struct HttpReply {
  int status = 0;
  HttpHeaders headers;  // Names in lower case.
  std::string body;

  std::string header(std::string_view name) const;  // "" if there is none.
};

// There is no reply, or only a part of one.
class NoReply : public Error {
 public:
  using Error::Error;
};

// NoReply if there is no whole reply; a reply of any status is no error. If on_body ended the
// transfer, the reply is what came.
HttpReply http_request(const HttpRequest& request);

// Escapes what may not be in a path segment or in a query. `kept`: other characters that stay.
std::string url_escaped(std::string_view text, std::string_view kept = "");
std::string url_unescaped(std::string_view text);

// Returns "s3" of "s3://bucket"; "" of a path of this machine.
std::string_view url_scheme(std::string_view path);
// Returns whether a path begins with a scheme, supported or not.
bool is_url(const std::filesystem::path& path);

// Returns whether a URL has a password, or a user who may be a token (https://TOKEN@host).
bool has_secret(std::string_view url);
// Error, which does not repeat it, for a URL that has a secret.
void refuse_secret(std::string_view url);

// The parts of "https://host:8080/path?query".
struct UrlParts {
  std::string scheme;  // "https".
  std::string host;    // "host:8080".
  std::string path;    // "/path"; "" if there is none.
  std::string query;   // "query".
};
UrlParts parse_url(std::string_view url);

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// A client for HTTP: one request, one reply, within a time limit. No redirects, no cookies.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  HttpHeaders headers;
  std::string body;
  double timeout_seconds = 30.0;       // For all of it.
  std::function<bool()> is_cancelled;  // Asked at least once a second; may be empty.
};

struct HttpReply {
  int status = 0;
  HttpHeaders headers;  // Names in lower case.
  std::string body;
};

// Error if there is no reply; a reply of any status is none.
HttpReply http_request(const HttpRequest& request);

// Escapes what may not be in a path segment or in a query.
std::string url_escaped(std::string_view text);

}  // namespace tessera

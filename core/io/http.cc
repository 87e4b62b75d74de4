// SPDX-License-Identifier: Apache-2.0
#include "core/io/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using CurlList = std::unique_ptr<curl_slist, CurlDeleter>;

size_t add_to_body(char* bytes, size_t size, size_t count, void* reply) {
  static_cast<HttpReply*>(reply)->body.append(bytes, size * count);
  return size * count;
}

size_t add_header(char* bytes, size_t size, size_t count, void* reply) {
  const std::string_view line(bytes, size * count);
  const size_t colon = line.find(':'), begin = line.find_first_not_of(" \t", colon + 1);
  if (colon == std::string_view::npos || begin == std::string_view::npos) return line.size();
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t end = line.find_last_not_of(" \t\r\n");
  static_cast<HttpReply*>(reply)->headers.emplace_back(
      name, end < begin ? "" : line.substr(begin, end - begin + 1));
  return line.size();
}

int is_cancelled(void* request, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& asked = static_cast<const HttpRequest*>(request)->is_cancelled;
  return asked && asked() ? 1 : 0;
}

CurlList list_of(const HttpHeaders& headers) {
  CurlList list(curl_slist_append(nullptr, "Expect:"));  // The body does not wait for a reply.
  for (const auto& [name, value] : headers)
    curl_slist_append(list.get(), fmt::format("{}: {}", name, value).c_str());
  return list;
}

}  // namespace

HttpReply http_request(const HttpRequest& request) {
  const std::unique_ptr<CURL, CurlDeleter> handle(curl_easy_init());
  if (!handle) fail("HTTP: libcurl cannot be used");
  CURL* const curl = handle.get();
  const CurlList headers = list_of(request.headers);
  char problem[CURL_ERROR_SIZE] = "";
  HttpReply reply;
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  if (request.method != "GET") {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.data());
  }
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS,
                   std::max(1L, static_cast<long>(request.timeout_seconds * 1e3)));
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_cancelled);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &request);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, add_to_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, add_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &reply);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
  if (const CURLcode code = curl_easy_perform(curl); code != CURLE_OK)
    fail("{} {}: {}", request.method, request.url,
         problem[0] != '\0' ? problem : curl_easy_strerror(code));
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  reply.status = static_cast<int>(status);
  return reply;
}

std::string url_escaped(std::string_view text) {
  std::string escaped;
  for (const unsigned char c : text)
    if (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '~')
      escaped += static_cast<char>(c);
    else
      escaped += fmt::format("%{:02X}", c);
  return escaped;
}

}  // namespace tessera

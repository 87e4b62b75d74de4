// SPDX-License-Identifier: Apache-2.0
#include "core/io/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "core/base/seconds.h"

namespace tessera {
namespace {

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using CurlHandle = std::unique_ptr<CURL, CurlDeleter>;
using CurlList = std::unique_ptr<curl_slist, CurlDeleter>;

// Handles that are not in use, with their open connections. Never destroyed: threads may outlive
// static objects.
struct IdleHandles {
  std::mutex mutex;
  std::vector<CurlHandle> handles;
};
IdleHandles& idle_handles() {
  static auto* const idle = new IdleHandles;
  return *idle;
}

CurlHandle take_handle() {
  IdleHandles& idle = idle_handles();
  const std::lock_guard lock(idle.mutex);
  if (idle.handles.empty()) return CurlHandle(curl_easy_init());
  CurlHandle handle = std::move(idle.handles.back());
  idle.handles.pop_back();
  curl_easy_reset(handle.get());
  return handle;
}

void keep_handle(CurlHandle handle) {
  constexpr size_t kMostIdle = 16;
  IdleHandles& idle = idle_handles();
  const std::lock_guard lock(idle.mutex);
  if (idle.handles.size() < kMostIdle) idle.handles.push_back(std::move(handle));
}

// A transfer under way.
struct Transfer {
  const HttpRequest& request;
  CURL* curl;
  HttpReply reply = {};
  bool is_ended = false;  // By on_body.
  curl_off_t moved = -1;  // Bytes, in both directions; and when the last was.
  std::chrono::steady_clock::time_point moved_at = {};

  int status() const {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return static_cast<int>(status);
  }
};

size_t add_to_body(char* bytes, size_t size, size_t count, void* argument) {
  auto& transfer = *static_cast<Transfer*>(argument);
  if (const int status = transfer.status(); transfer.request.on_body && status / 100 == 2) {
    transfer.is_ended = !transfer.request.on_body(status, {bytes, size * count});
    return transfer.is_ended ? 0 : size * count;
  }
  transfer.reply.body.append(bytes, size * count);
  return size * count;
}

size_t add_header(char* bytes, size_t size, size_t count, void* argument) {
  HttpReply& reply = static_cast<Transfer*>(argument)->reply;
  const std::string_view line(bytes, size * count);
  if (line.starts_with("HTTP/")) reply.headers.clear();  // That before was of a proxy.
  const size_t colon = line.find(':'), begin = line.find_first_not_of(" \t", colon + 1);
  if (colon == std::string_view::npos || begin == std::string_view::npos) return line.size();
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t end = line.find_last_not_of(" \t\r\n");
  reply.headers.emplace_back(name, end < begin ? "" : line.substr(begin, end - begin + 1));
  return line.size();
}

int is_cancelled(void* argument, curl_off_t, curl_off_t down, curl_off_t, curl_off_t up) {
  auto& transfer = *static_cast<Transfer*>(argument);
  if (std::exchange(transfer.moved, down + up) != down + up)
    transfer.moved_at = std::chrono::steady_clock::now();
  const auto& asked = transfer.request.is_cancelled;
  return asked && asked(seconds_since(transfer.moved_at)) ? 1 : 0;
}

CurlList list_of(const HttpHeaders& headers) {
  CurlList list(curl_slist_append(nullptr, "Expect:"));  // The body does not wait for a reply.
  for (const auto& [name, value] : headers)
    curl_slist_append(list.get(), fmt::format("{}: {}", name, value).c_str());
  return list;
}

void set_limits(CURL* curl, const HttpRequest& request) {
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  if (request.timeout_seconds > 0)
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS,
                     std::max(1L, static_cast<long>(request.timeout_seconds * 1e3)));
  // The variables of curl itself and of the AWS tools, for hosts with certificates of their own.
  for (const char* name : {"CURL_CA_BUNDLE", "AWS_CA_BUNDLE"})
    if (const char* file = std::getenv(name); file != nullptr && *file != '\0')
      curl_easy_setopt(curl, CURLOPT_CAINFO, file);
}

void set_body(CURL* curl, const HttpRequest& request) {
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (request.method == "HEAD") curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  if (request.method == "HEAD" || request.method == "GET") return;
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.data());
}

}  // namespace

std::string HttpReply::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &HttpHeaders::value_type::first);
  return found == headers.end() ? "" : found->second;
}

HttpReply http_request(const HttpRequest& request) {
  CurlHandle handle = take_handle();
  if (!handle) fail("HTTP: libcurl cannot be used");
  CURL* const curl = handle.get();
  const CurlList headers = list_of(request.headers);
  Transfer transfer{request, curl};
  char problem[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);  // The name of an object may have "..".
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  set_limits(curl, request);
  set_body(curl, request);
  curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, request.new_connection ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_cancelled);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 256L << 10);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, add_to_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, add_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
  const CURLcode code = curl_easy_perform(curl);
  transfer.reply.status = transfer.status();
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  if (code != CURLE_OK && !transfer.is_ended)
    throw NoReply(fmt::format("{} {}: {}", request.method, request.url,
                              code == CURLE_ABORTED_BY_CALLBACK ? "the server does not answer"
                              : problem[0] != '\0'              ? problem
                                                                : curl_easy_strerror(code)));
  keep_handle(std::move(handle));
  return std::move(transfer.reply);
}

std::string url_escaped(std::string_view text, std::string_view kept) {
  std::string escaped;
  for (const unsigned char c : text)
    if (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '~' ||
        kept.find(static_cast<char>(c)) != std::string_view::npos)
      escaped += static_cast<char>(c);
    else
      escaped += fmt::format("%{:02X}", c);
  return escaped;
}

std::string url_unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
      plain += static_cast<char>(value);
      i += 2;
    } else {
      plain += text[i] == '+' ? ' ' : text[i];
    }
  }
  return plain;
}

std::string_view url_scheme(std::string_view path) {
  const size_t end = path.find("://");
  if (end == std::string_view::npos || end == 0 || path[0] == '.') return "";
  const bool is_scheme = std::ranges::all_of(path.substr(0, end), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
  });
  return is_scheme ? path.substr(0, end) : "";
}

bool is_url(const std::filesystem::path& path) { return !url_scheme(path.native()).empty(); }

bool has_secret(std::string_view url) {
  const std::string_view scheme = url_scheme(url);
  if (scheme.empty()) return false;
  url.remove_prefix(scheme.size() + 3);
  const std::string_view host = url.substr(0, url.find_first_of("/?#"));
  const size_t at = host.rfind('@');
  if (at == std::string_view::npos) return false;
  return scheme == "http" || scheme == "https" || host.substr(0, at).find(':') != host.npos;
}

void refuse_secret(std::string_view url) {
  if (!has_secret(url)) return;
  const std::string_view host = url.substr(0, url.find('/', url.find("://") + 3));
  fail(
      "{}://{}: the URL has a user or password, which would be written to hparams.toml and to "
      "logs; leave it out, and give credentials in the environment or in the service's file of "
      "credentials (docs/storage.md)",
      url_scheme(url), host.substr(host.rfind('@') + 1));
}

UrlParts parse_url(std::string_view url) {
  UrlParts parts;
  if (const size_t end = url.find("://"); end != std::string_view::npos) {
    parts.scheme = url.substr(0, end);
    url.remove_prefix(end + 3);
  }
  if (const size_t query = url.find('?'); query != std::string_view::npos) {
    parts.query = url.substr(query + 1);
    url = url.substr(0, query);
  }
  const size_t slash = std::min(url.find('/'), url.size());
  parts.host = url.substr(0, slash);
  parts.path = url.substr(slash);
  return parts;
}

}  // namespace tessera

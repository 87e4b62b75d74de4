// SPDX-License-Identifier: Apache-2.0
#include "core/io/storage/signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string hmac(std::string_view key, std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest,
           &size) == nullptr)
    fail("HMAC: libcrypto cannot be used");
  return {reinterpret_cast<const char*>(digest), size};
}

std::string utc(const char* format, std::time_t now) {
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

// The query's parameters by name, each with a '='.
std::string canonical_query(std::string_view query) {
  std::vector<std::string> parameters;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    std::string parameter(query.substr(0, end));
    if (parameter.find('=') == std::string::npos) parameter += '=';
    parameters.push_back(std::move(parameter));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  std::ranges::sort(parameters);
  return fmt::format("{}", fmt::join(parameters, "&"));
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) != 1)
    fail("SHA-256: libcrypto cannot be used");
  return hex({reinterpret_cast<const char*>(digest), size});
}

void sign(HttpRequest& request, const StorageCredentials& credentials, std::string_view region,
          std::time_t now, const SignatureDialect& dialect) {
  const UrlParts url = parse_url(request.url);
  const std::string time = utc("%Y%m%dT%H%M%SZ", now), payload = sha256_hex(request.body);
  const auto add = [&](std::string_view name, const std::string& value) {
    request.headers.emplace_back(fmt::format("{}{}", dialect.header_prefix, name), value);
  };
  request.headers.emplace_back("host", url.host);
  add("date", time);
  add("content-sha256", payload);
  if (!credentials.session_token.empty()) add("security-token", credentials.session_token);

  std::map<std::string, std::string> headers;  // By name in lower case.
  for (const auto& [name, value] : request.headers) {
    std::string lower = name;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    headers[lower] = value;
  }
  std::string lines, names;
  for (const auto& [name, value] : headers) {
    lines += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, url.path.empty() ? "/" : url.path,
                  canonical_query(url.query), lines, names, payload);
  const std::string scope =
      fmt::format("{}/{}/{}/{}", time.substr(0, 8), region, dialect.service, dialect.end);
  std::string key = fmt::format("{}{}", dialect.key_prefix, credentials.secret);
  for (const std::string_view part :
       {std::string_view(time).substr(0, 8), region, dialect.service, dialect.end})
    key = hmac(key, part);
  const std::string signature = hex(hmac(
      key, fmt::format("{}\n{}\n{}\n{}", dialect.algorithm, time, scope, sha256_hex(canonical))));
  request.headers.emplace_back(
      "Authorization", fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}",
                                   dialect.algorithm, credentials.key_id, scope, names, signature));
}

}  // namespace tessera

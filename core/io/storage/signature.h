// SPDX-License-Identifier: Apache-2.0
// Signatures of requests to object stores: AWS Signature Version 4 (docs.aws.amazon.com, "Signature
// Calculations for the Authorization Header"), and Google's, which differs in names only.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "core/io/http.h"

namespace tessera {

struct StorageCredentials {
  std::string key_id, secret;
  std::string session_token;  // For temporary credentials; else "".
};

// The names that differ between services.
struct SignatureDialect {
  std::string_view algorithm = "AWS4-HMAC-SHA256";
  std::string_view key_prefix = "AWS4";
  std::string_view end = "aws4_request";
  std::string_view header_prefix = "x-amz-";
  std::string_view service = "s3";
};
inline constexpr SignatureDialect kAwsSignature;
inline constexpr SignatureDialect kGoogleSignature = {"GOOG4-HMAC-SHA256", "GOOG4", "goog4_request",
                                                      "x-goog-", "storage"};

std::string sha256_hex(std::string_view bytes);

// Adds the headers host, <prefix>date, <prefix>content-sha256, that of a session token, and
// Authorization, which signs all headers, the path, the query and the body. The path and the query
// of `request.url` are escaped.
void sign(HttpRequest& request, const StorageCredentials& credentials, std::string_view region,
          std::time_t now, const SignatureDialect& dialect = kAwsSignature);

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "core/io/storage/signature.h"

#include "tests/support/catch.h"

namespace tessera {
namespace {

// Amazon's examples: docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html.
TEST_CASE("signatures are those of Amazon's examples") {
  const StorageCredentials credentials = {"AKIAIOSFODNN7EXAMPLE",
                                          "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
  constexpr std::time_t kTime = 1369353600;  // 2013-05-24 00:00:00 UTC.
  const std::string host = "https://examplebucket.s3.amazonaws.com";
  struct Example {
    HttpRequest request;
    std::string signature;
  };
  for (Example example : {
           Example{{.url = host + "/test.txt", .headers = {{"Range", "bytes=0-9"}}},
                   "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
           Example{{.method = "PUT",
           .url = host + "/test%24file.text",
           .headers = {{"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                       {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
           .body = "Welcome to Amazon S3."},
                   "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
           Example{{.url = host + "/?lifecycle"},
                   "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
           Example{{.url = host + "/?max-keys=2&prefix=J"},
                   "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
       }) {
    sign(example.request, credentials, "us-east-1", kTime);
    const auto [name, value] = example.request.headers.back();
    REQUIRE(name == "Authorization");
    REQUIRE_THAT(value, Catch::StartsWith("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/"
                                          "20130524/us-east-1/s3/aws4_request, SignedHeaders="));
    REQUIRE_THAT(value, Catch::EndsWith("Signature=" + example.signature));
  }
}

TEST_CASE("a session token is signed; Google's names differ") {
  HttpRequest request{.url = "https://storage.googleapis.com/bucket/key"};
  sign(request, {"id", "secret", "token"}, "auto", 0, kGoogleSignature);
  const std::string value = request.headers.back().second;
  REQUIRE_THAT(value, Catch::StartsWith("GOOG4-HMAC-SHA256 Credential=id/19700101/auto/storage/"
                                        "goog4_request"));
  REQUIRE_THAT(value, Catch::Contains("x-goog-content-sha256;x-goog-date;x-goog-security-token"));
}

}  // namespace
}  // namespace tessera

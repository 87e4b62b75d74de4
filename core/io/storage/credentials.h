// SPDX-License-Identifier: Apache-2.0
// The account and the address of a bucket's service, from the environment and the files of the
// services' own tools. They are read for every request, so that renewed ones count at once, and are
// never written anywhere.
#pragma once

#include <string>

#include "core/io/storage/signature.h"

namespace tessera {

struct BucketService {
  StorageCredentials credentials;
  std::string region;
  std::string endpoint;  // "http://127.0.0.1:8333"; "": the service's own.
};

// s3://: the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and
// AWS_ENDPOINT_URL_S3, else ~/.aws/credentials and ~/.aws/config by AWS_PROFILE. Error that says so
// if there is no key.
BucketService s3_service();

// gs://: HMAC keys from GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, or from ~/.boto;
// GS_ENDPOINT_URL.
BucketService google_service();

// The token for hf://: HF_TOKEN, or the file that `hf auth login` writes; "" if there is none.
std::string hugging_face_token();

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// The kinds of stores, for storage_of().
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/io/http.h"

namespace tessera {

class BaseStorage;

std::unique_ptr<BaseStorage> s3_storage();            // s3://bucket/key
std::unique_ptr<BaseStorage> google_storage();        // gs://bucket/key
std::unique_ptr<BaseStorage> web_storage();           // https://host/path, http://host/path
std::unique_ptr<BaseStorage> hugging_face_storage();  // hf://[datasets/]org/name[@revision]/path
std::unique_ptr<BaseStorage> command_storage(std::string command);

// Fills `bytes` from `offset` by GET requests with a range, which continue after what an
// interrupted one has brought. `make` returns a request with these headers besides its own. Returns
// the last reply; if its status is 2xx, all bytes are there.
HttpReply read_range(const std::function<HttpRequest(const HttpHeaders& range)>& make,
                     const std::string& what, int64_t offset, std::span<std::byte> bytes);

// Returns a size as stores write it; 0 for any other text, the largest int64_t for a larger number.
inline int64_t object_size(const std::string& text) {
  return std::max<int64_t>(0, std::strtoll(text.c_str(), nullptr, 10));
}

// The time that a transfer may stand still before it is begun again.
inline constexpr double kStallSeconds = 30.0;

// Calls work(i) for i in [0, count) on several threads; throws the first error when all have ended.
void for_each_transfer(int64_t count, const std::function<void(int64_t)>& work);

}  // namespace tessera

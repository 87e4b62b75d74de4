// SPDX-License-Identifier: Apache-2.0
// The kinds of stores, for storage_of().
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

namespace tessera {

class BaseStorage;

std::unique_ptr<BaseStorage> s3_storage();            // s3://bucket/key
std::unique_ptr<BaseStorage> google_storage();        // gs://bucket/key
std::unique_ptr<BaseStorage> web_storage();           // https://host/path, http://host/path
std::unique_ptr<BaseStorage> hugging_face_storage();  // hf://[datasets/]org/name[@revision]/path
std::unique_ptr<BaseStorage> command_storage(std::string command);

// Returns a size as stores write it; 0 for any other text, the largest int64_t for a larger number.
inline int64_t object_size(const std::string& text) {
  return std::max<int64_t>(0, std::strtoll(text.c_str(), nullptr, 10));
}

// Files or parts of one that are copied at a time.
inline constexpr int64_t kTransfersAtOnce = 8;

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// Objects outside this machine's file system, named by URLs: s3://bucket/key, gs://bucket/key,
// hf://…, https://…, and the scheme of a command of the user's (docs/storage.md). A URL may stand
// in a std::filesystem::path; ByteFile::open() and read_file() read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/http.h"

namespace tessera {

struct ObjectInfo {
  std::string url;
  int64_t size = 0;
  std::string etag;  // Names the contents; "" if the store has none.
};

// The condition of a write.
struct WriteCondition {
  bool if_absent = false;     // Only if there is no such object.
  std::string if_match = "";  // Only if it has this ETag.
};

enum class WriteResult { kWritten, kConditionFailed };

// One kind of store. Every member takes whole URLs, is thread-safe, tries again what may be
// transient, and throws an Error that names the URL.
class BaseStorage {
 public:
  virtual ~BaseStorage() = default;

  // Returns nothing if there is no such object.
  virtual std::optional<ObjectInfo> find(const std::string& url) = 0;
  // Returns all objects whose URL begins with `prefix`, by URL.
  virtual std::vector<ObjectInfo> list(const std::string& prefix) = 0;
  // Reads bytes of an object. Error if it has changed since `object` was found.
  virtual void read(const ObjectInfo& object, int64_t offset, std::span<std::byte> bytes) = 0;

  // These are Errors of stores that can only be read.
  // `etag` gets that of the new object.
  virtual WriteResult write(const std::string& url, std::string_view bytes,
                            const WriteCondition& condition, std::string* etag);
  // Writes the object from a file, which appears whole or not at all.
  virtual void upload(const std::string& url, const std::filesystem::path& file);
  virtual void remove(const std::string& url);  // No error if there is none.
};

// Returns the store of a URL. Error with the schemes that are known for any other, and for a URL
// that has a password.
BaseStorage& storage_of(std::string_view url);

// Returns a path as user_path() reads it, for what may be in an object store: a URL is returned
// without a slash at its end. Error for one of an unknown scheme.
std::string path_or_url(std::string_view path, std::string_view what);

// Returns whether a file, or an object of this URL, exists.
bool path_exists(const std::filesystem::path& path);

// Whole files. A folder is copied with several transfers at a time.
void write_object(const std::string& url, std::string_view bytes);
void download_file(const ObjectInfo& object, const std::filesystem::path& to);
void upload_folder(const std::filesystem::path& folder, const std::string& url);

// Returns a path of this machine: `path` itself, or for a URL a copy of that file or folder in the
// cache, which is replaced if the store has another version. `wanted` chooses files of a folder by
// their names below it; empty: all.
std::filesystem::path local_copy(const std::filesystem::path& path,
                                 const std::function<bool(std::string_view name)>& wanted = {});

// Returns $TESSERA_CACHE_DIR, or ~/.cache/tessera.
std::filesystem::path cache_directory();

}  // namespace tessera

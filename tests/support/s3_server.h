// SPDX-License-Identifier: Apache-2.0
// The server of s3_server.py for a test: runs while the object exists, with the environment
// variables by which this process and its children reach it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/process.h"
#include "core/io/json.h"
#include "tests/support/temporary_directory.h"

namespace tessera {

// An environment variable that has another value, or none, in a scope.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const char* value);
  ~ScopedVariable();
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_, before_;
  bool was_set_;
};

class S3Server {
 public:
  static constexpr const char* kSecret = "test/secret+key";
  static constexpr const char* kHuggingFaceToken = "hf_test_token";

  // `options` as in s3_server.py.
  explicit S3Server(const std::vector<std::string>& options = {});
  ~S3Server();

  // "http://127.0.0.1:PORT", and that of the host to which it redirects.
  const std::string& address() const { return address_; }
  const std::string& other_address() const { return other_address_; }
  // $TESSERA_CACHE_DIR.
  const std::filesystem::path& cache() const { return cache_.path(); }

  // Replaces the planted faults; `faults` is JSON: [{"method": "GET", "times": 2, "do": "500"}].
  void plant(std::string_view faults) const;
  std::vector<Json> log() const;
  // How many requests of the log have this method and a path that contains `part`.
  int64_t requests(std::string_view method, std::string_view part = "") const;
  std::vector<std::string> objects(std::string_view prefix = "") const;  // "bucket/key", by name.
  int64_t unfinished_uploads() const;
  // For an object "bucket/key", without a signature.
  void put(std::string_view name, std::string_view bytes) const;
  std::string get(std::string_view name) const;
  void remove(std::string_view name) const;

 private:
  std::string request(const std::string& method, std::string_view path,
                      std::string_view body = "") const;

  std::string address_, other_address_;
  TemporaryDirectory cache_;
  int input_ = -1;  // The server ends when it is closed.
  std::unique_ptr<ChildProcess> server_;
  std::vector<std::unique_ptr<ScopedVariable>> variables_;
};

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "core/io/storage/credentials.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/environment.h"
#include "core/io/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The keys of a section of an .ini file.
using Section = std::map<std::string, std::string>;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
  return begin == std::string_view::npos ? "" : text.substr(begin, end - begin + 1);
}

// Returns the section [name]; empty if there is none, or no file. Nested keys are left out.
Section ini_section(const fs::path& path, std::string_view name) {
  Section section;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return section;
  const std::string text = read_file(path, int64_t{1} << 20);
  bool is_in = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view raw(text.data() + at, end - at), line = trimmed(raw);
    at = end + 1;
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      is_in = trimmed(line.substr(1, line.find(']') - 1)) == name;
    } else if (const size_t equals = line.find('=');
               is_in && equals != std::string_view::npos && raw[0] != ' ' && raw[0] != '\t') {
      section[std::string(trimmed(line.substr(0, equals)))] = trimmed(line.substr(equals + 1));
    }
  }
  return section;
}

fs::path home() { return environment("HOME"); }

// Returns the first of the variables that is set, else the key of the section.
std::string first_of(std::initializer_list<const char*> variables, const Section& section = {},
                     const std::string& key = "") {
  for (const char* name : variables)
    if (std::string value = environment(name); !value.empty()) return value;
  const auto found = section.find(key);
  return found == section.end() ? "" : found->second;
}

fs::path path_of(const char* variable, const fs::path& fallback) {
  const std::string given = environment(variable);
  return given.empty() ? fallback : fs::path(given);
}

std::string without_slash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

}  // namespace

BucketService s3_service() {
  const std::string given = first_of({"AWS_PROFILE"}), profile = given.empty() ? "default" : given;
  const fs::path keys_file = path_of("AWS_SHARED_CREDENTIALS_FILE", home() / ".aws/credentials");
  const Section config =
      ini_section(path_of("AWS_CONFIG_FILE", home() / ".aws/config"),
                  profile == "default" ? profile : fmt::format("profile {}", profile));
  BucketService service;
  service.credentials = {environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"),
                         environment("AWS_SESSION_TOKEN")};
  if (service.credentials.key_id.empty() || service.credentials.secret.empty()) {
    Section keys = ini_section(keys_file, profile);
    if (keys["aws_access_key_id"].empty()) keys = config;
    service.credentials = {keys["aws_access_key_id"], keys["aws_secret_access_key"],
                           keys["aws_session_token"]};
  }
  if (service.credentials.key_id.empty() || service.credentials.secret.empty())
    fail(
        "s3://: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and "
        "AWS_SESSION_TOKEN), or write the profile [{}] of {}",
        profile, keys_file.string());
  service.region = first_of({"AWS_REGION", "AWS_DEFAULT_REGION"}, config, "region");
  if (service.region.empty()) service.region = "us-east-1";
  service.endpoint =
      without_slash(first_of({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, config, "endpoint_url"));
  return service;
}

BucketService google_service() {
  const fs::path file = path_of("BOTO_CONFIG", home() / ".boto");
  const Section boto = ini_section(file, "Credentials");
  BucketService service;
  service.credentials = {first_of({"GS_ACCESS_KEY_ID"}, boto, "gs_access_key_id"),
                         first_of({"GS_SECRET_ACCESS_KEY"}, boto, "gs_secret_access_key"), ""};
  if (service.credentials.key_id.empty() || service.credentials.secret.empty())
    fail(
        "gs://: no HMAC key; set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, or gs_access_key_id "
        "and gs_secret_access_key in [Credentials] of {} (gcloud storage hmac create makes one)",
        file.string());
  service.region = "auto";
  service.endpoint = without_slash(environment("GS_ENDPOINT_URL"));
  return service;
}

std::string hugging_face_token() {
  const std::string given = first_of({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  const fs::path file =
      path_of("HF_TOKEN_PATH", path_of("HF_HOME", home() / ".cache/huggingface") / "token");
  std::error_code ignored;
  if (!given.empty() || !fs::is_regular_file(file, ignored)) return given;
  const std::string text = read_file(file, int64_t{1} << 16);
  return std::string(trimmed(std::string_view(text).substr(0, text.find('\n'))));
}

}  // namespace tessera

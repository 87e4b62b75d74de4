// SPDX-License-Identifier: Apache-2.0
#include "tests/support/s3_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/http.h"
#include "tests/support/source_tree.h"

namespace tessera {
namespace {

std::string read_line(int descriptor) {
  std::string line;
  for (char c = 0; ::read(descriptor, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

std::string escaped_path(std::string_view name) {
  std::string path = url_escaped(name);
  for (size_t at = 0; (at = path.find("%2F", at)) != std::string::npos;) path.replace(at, 3, "/");
  return path;
}

}  // namespace

ScopedVariable::ScopedVariable(std::string name, const char* value) : name_(std::move(name)) {
  const char* before = std::getenv(name_.c_str());
  was_set_ = before != nullptr;
  if (was_set_) before_ = before;
  value == nullptr ? ::unsetenv(name_.c_str()) : ::setenv(name_.c_str(), value, 1);
}

ScopedVariable::~ScopedVariable() {
  was_set_ ? ::setenv(name_.c_str(), before_.c_str(), 1) : ::unsetenv(name_.c_str());
}

S3Server::S3Server(const std::vector<std::string>& options) {
  int input[2], output[2];
  CHECK(::pipe2(input, O_CLOEXEC) == 0 && ::pipe2(output, O_CLOEXEC) == 0);
  std::vector<std::string> command{"python3",
                                   (source_root() / "tests/support/s3_server.py").string()};
  command.insert(command.end(), options.begin(), options.end());
  server_ = std::make_unique<ChildProcess>(command, output[1], input[0]);
  ::close(input[0]);
  ::close(output[1]);
  input_ = input[1];
  const std::string ports = read_line(output[0]);
  ::close(output[0]);
  const size_t space = ports.find(' ');
  CHECK(space != std::string::npos, "s3_server.py did not start: {}", ports);
  address_ = "http://127.0.0.1:" + ports.substr(0, space);
  other_address_ = "http://127.0.0.1:" + ports.substr(space + 1);
  const auto set = [&](const char* name, const char* value) {
    variables_.push_back(std::make_unique<ScopedVariable>(name, value));
  };
  set("AWS_ENDPOINT_URL", address_.c_str());
  set("AWS_ACCESS_KEY_ID", "TESTKEYID");
  set("AWS_SECRET_ACCESS_KEY", kSecret);
  set("AWS_REGION", "us-east-1");
  set("HF_ENDPOINT", address_.c_str());
  set("HF_TOKEN", kHuggingFaceToken);
  set("TESSERA_CACHE_DIR", cache_.path().c_str());
  for (const char* name : {"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "http_proxy",
                           "https_proxy", "all_proxy", "no_proxy"})
    set(name, nullptr);
}

S3Server::~S3Server() {
  ::close(input_);
  server_->wait(std::chrono::steady_clock::now() + std::chrono::seconds(5));
}

std::string S3Server::request(const std::string& method, std::string_view path,
                              std::string_view body) const {
  const HttpReply reply = http_request(
      {.method = method, .url = address_ + std::string(path), .body = std::string(body)});
  CHECK(reply.status / 100 == 2, "{} {}: {} {}", method, path, reply.status, reply.body);
  return reply.body;
}

void S3Server::plant(std::string_view faults) const { request("POST", "/_faults", faults); }

std::vector<Json> S3Server::log() const {
  return parse_json(request("GET", "/_log"), "log").as_array();
}

int64_t S3Server::requests(std::string_view method, std::string_view part) const {
  return std::ranges::count_if(log(), [&](const Json& each) {
    return each.at("method").as_string() == method &&
           each.at("path").as_string().find(part) != std::string::npos;
  });
}

std::vector<std::string> S3Server::objects(std::string_view prefix) const {
  std::vector<std::string> names;
  const Json listed = parse_json(request("GET", "/_objects"), "objects");
  for (const Json& name : listed.as_array())
    if (name.as_string().starts_with(prefix)) names.push_back(name.as_string());
  return names;
}

int64_t S3Server::unfinished_uploads() const {
  return std::ssize(parse_json(request("GET", "/_uploads"), "uploads").as_array());
}

void S3Server::put(std::string_view name, std::string_view bytes) const {
  request("PUT", "/_public/" + escaped_path(name), bytes);
}

std::string S3Server::get(std::string_view name) const {
  return request("GET", "/_public/" + escaped_path(name));
}

void S3Server::remove(std::string_view name) const {
  request("DELETE", "/_public/" + escaped_path(name));
}

}  // namespace tessera

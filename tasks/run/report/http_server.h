// SPDX-License-Identifier: Apache-2.0
// A small HTTP server on this machine's loopback interface, for pages that a browser shows. It
// answers GET and HEAD from a function, on one thread, over a bounded number of connections.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

struct HttpAnswer {
  int status = 200;
  std::string type;                         // "text/html; charset=utf-8"
  std::shared_ptr<const std::string> body;  // Connections that send one page share it.

  static HttpAnswer text(int status, std::string body);  // Plain text.
};

class HttpServer {
 public:
  // What to answer for a path ("/", "/data.json"). An exception becomes status 500 with its text.
  using Answer = std::function<HttpAnswer(std::string_view path)>;

  // Listens on 127.0.0.1. Port 0: one that is free. Error if the port cannot be used.
  HttpServer(uint16_t port, Answer answer);
  ~HttpServer();
  HttpServer& operator=(HttpServer&&) = delete;  // Neither copied nor moved.

  uint16_t port() const;
  // Serves until stop(), or until Ctrl-C, SIGTERM or SIGHUP.
  void run();
  void stop();  // May be called by any thread.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera

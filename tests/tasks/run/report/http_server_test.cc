// SPDX-License-Identifier: Apache-2.0
// The server of --watch over real sockets: several clients at once, and clients that are no
// browser.
#include "tasks/run/report/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/run/report/sample_run.h"

namespace tessera {
namespace {

using Catch::Contains;
using Catch::StartsWith;

class Client {
 public:
  explicit Client(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool is_connected() const { return is_connected_; }
  // Whether all was sent. Threads call this, and assertions belong to the main thread.
  [[nodiscard]] bool send(const std::string& text) const {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  // Everything until the server closes the connection.
  std::string receive() const {
    std::string all, block(4096, '\0');
    for (ssize_t got; (got = ::recv(socket_, block.data(), block.size(), 0)) > 0;)
      all.append(block, 0, static_cast<size_t>(got));
    return all;
  }

 private:
  int socket_;
  bool is_connected_ = false;
};

std::string request(const std::string& first_line, const std::string& host) {
  return fmt::format("{}\r\nHost: {}\r\nConnection: close\r\n\r\n", first_line, host);
}
std::string request(const std::string& first_line, uint16_t port) {
  return request(first_line, fmt::format("127.0.0.1:{}", port));
}

std::string answer_to(uint16_t port, const std::string& text) {
  const Client client(port);
  return client.send(text) ? client.receive() : "not sent";
}

// A server on a separate thread.
class Serving {
 public:
  Serving()
      : server_(0,
                [](std::string_view path) -> HttpAnswer {
                  if (path == "/boom") fail("no luck");
                  return HttpAnswer::text(200, "you asked for " + std::string(path));
                }),
        thread_([this] { server_.run(); }) {}
  ~Serving() {
    server_.stop();
    thread_.join();
  }
  uint16_t port() const { return server_.port(); }

 private:
  HttpServer server_;
  std::thread thread_;
};

TEST_CASE("the server answers GET and HEAD, and nothing else") {
  const Serving serving;
  const auto ask = [&](const std::string& line, const std::string& host = "127.0.0.1") {
    return answer_to(serving.port(), request(line, fmt::format("{}:{}", host, serving.port())));
  };
  const std::string get = ask("GET /x?y=1 HTTP/1.1");
  REQUIRE_THAT(get, StartsWith("HTTP/1.1 200 OK") && Contains("you asked for /x") &&
                        Contains("Content-Security-Policy: default-src 'none';") &&
                        Contains("frame-ancestors 'none'"));
  const std::string head = ask("HEAD /x HTTP/1.1", "localhost");
  REQUIRE_THAT(head, StartsWith("HTTP/1.1 200 OK") && Contains("Content-Length: 16") &&
                         !Contains("you asked"));
  REQUIRE_THAT(ask("POST / HTTP/1.1"), StartsWith("HTTP/1.1 405"));
  REQUIRE_THAT(ask("GET /boom HTTP/1.1"), StartsWith("HTTP/1.1 500") && Contains("no luck"));
  for (const char* host : {"evil.example", "127.0.0.1.evil.example", "[::1]"})
    REQUIRE_THAT(ask("GET / HTTP/1.1", host), StartsWith("HTTP/1.1 421"));
  for (const char* host : {"127.0.0.1", "127.0.0.1:1", "localhost:", "localhost:80:80"})
    REQUIRE_THAT(answer_to(serving.port(), request("GET / HTTP/1.1", host)),
                 StartsWith("HTTP/1.1 421"));
}

TEST_CASE("a new connection takes the place of the one that is idle longest") {
  const Serving serving;
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 70; ++i) {
    idle.push_back(std::make_unique<Client>(serving.port()));
    REQUIRE(idle.back()->is_connected());
    REQUIRE(idle.back()->send("GET / HT"));
  }
  REQUIRE_THAT(answer_to(serving.port(), request("GET / HTTP/1.1", serving.port())),
               StartsWith("HTTP/1.1 200"));
  // 64 connections with that one: the first seven were closed.
  for (size_t i = 0; i < 7; ++i) REQUIRE(idle[i]->receive().empty());
  REQUIRE(idle[7]->send(
      fmt::format("TP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n", serving.port())));
  REQUIRE_THAT(idle[7]->receive(), StartsWith("HTTP/1.1 200"));
}

TEST_CASE("malformed requests are refused, and the server goes on") {
  const Serving serving;
  for (const std::string& text :
       {std::string("nonsense\r\n\r\n"), std::string("\x16\x03\x01\x02", 4) + "\r\n\r\n",
        std::string("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        "GET /" + std::string(100'000, 'x') + " HTTP/1.1\r\n\r\n"}) {
    const Client client(serving.port());
    REQUIRE(client.send(text));
    REQUIRE_THAT(client.receive(), StartsWith("HTTP/1.1 400") || Catch::Equals(""));
  }
  { const Client leaves_at_once(serving.port()); }
  REQUIRE_THAT(answer_to(serving.port(), request("GET / HTTP/1.1", serving.port())),
               StartsWith("HTTP/1.1 200"));
}

TEST_CASE("silent connections do not hold up others") {
  const Serving serving;
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(std::make_unique<Client>(serving.port()));
  REQUIRE(silent[0]->send("GET / HT"));
  std::vector<std::thread> threads;
  std::vector<std::string> answers(8);
  for (std::string& answer : answers)
    threads.emplace_back(
        [&] { answer = answer_to(serving.port(), request("GET / HTTP/1.1", serving.port())); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& answer : answers) REQUIRE_THAT(answer, StartsWith("HTTP/1.1 200"));
  REQUIRE(silent[0]->send(
      fmt::format("TP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n", serving.port())));
  REQUIRE_THAT(silent[0]->receive(), StartsWith("HTTP/1.1 200"));
}

TEST_CASE("a port in use is an error that says what to do") {
  const Serving serving;
  const HttpServer::Answer nothing = [](std::string_view) { return HttpAnswer{}; };
  REQUIRE(error_of([&] { const HttpServer second(serving.port(), nothing); }) ==
          fmt::format("--port={}: another program uses this port; give another, or none for one "
                      "that is free",
                      serving.port()));
}

TEST_CASE("--watch serves a run that goes on, and Ctrl-C ends it") {
  const TemporaryDirectory folder;
  write_sample_run(folder / "run", 5);
  Child watch("runexp", {"--watch=" + (folder / "run").string()}, folder / "output");
  const std::string before = "http://127.0.0.1:";
  REQUIRE(comes_true([&] { return std::filesystem::exists(folder / "output"); }));
  REQUIRE(comes_true([&] { return watch.output().find("Ctrl-C") != std::string::npos; }));
  const auto port = static_cast<uint16_t>(
      std::stoi(watch.output().substr(watch.output().find(before) + before.size())));
  const auto get = [&](const std::string& path) {
    return answer_to(port, request("GET " + path + " HTTP/1.1", port));
  };
  REQUIRE_THAT(get("/"), Contains("<!doctype html>") && Contains("\"step\": 5,"));
  std::ofstream(folder / "run/metrics.jsonl", std::ios::app) << "{\"step\": 6, \"loss\": 1}\n";
  REQUIRE_THAT(get("/data.json"), Contains("application/json") && Contains("\"step\": 6,"));
  REQUIRE_THAT(get("/etc/passwd"), StartsWith("HTTP/1.1 404"));
  watch.send(SIGINT);
  REQUIRE(watch.wait() == 0);
}

}  // namespace
}  // namespace tessera

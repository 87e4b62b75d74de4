// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/report/http_server.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/http/span_body.hpp>
#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr std::chrono::seconds kPatience(30);  // With a silent connection.
constexpr uint32_t kLongestHeader = 16 << 10;  // Bytes of a request.
constexpr uint64_t kLongestBody = 4 << 10;     // No request needs one.

constexpr size_t kMostConnections = 64;

// A page may run its own script and ask this server, and nothing else; no other page may frame it.
constexpr const char* kContentPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// A page of another site whose name leads to this machine must not read the run: requests must
// name this machine and port. (A browser leaves out port 80.)
bool names_this_server(std::string_view host, uint16_t port) {
  const size_t colon = std::min(host.find(':'), host.size());
  const std::string_view name = host.substr(0, colon);
  const std::string given(colon < host.size() ? host.substr(colon + 1) : "80");
  return (name == "127.0.0.1" || name == "localhost") && given == std::to_string(port);
}

using Parser = http::request_parser<http::string_body>;
using Body = http::span_body<const char>;
using Serializer = http::response_serializer<Body>;

// One connection. It keeps itself alive while an operation is pending.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const HttpServer::Answer& answer)
      : port_(socket.local_endpoint().port()), stream_(std::move(socket)), answer_(answer) {}

  // Whether it waits for a request.
  bool is_idle() const { return is_idle_; }
  void close() { stream_.close(); }

  void read() {
    is_idle_ = true;
    parser_ = std::make_unique<Parser>();
    parser_->header_limit(kLongestHeader);
    parser_->body_limit(kLongestBody);
    stream_.expires_after(kPatience);
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](beast::error_code error, size_t) { self->on_read(error); });
  }

 private:
  void on_read(beast::error_code error) {
    is_idle_ = false;
    if (!error) return write(answer_to(parser_->get()), parser_->get().keep_alive());
    // The browser has left, or is silent.
    if (error == http::error::end_of_stream || error == beast::error::timeout ||
        error.category() == boost::system::system_category() ||
        error.category() == asio::error::get_misc_category())
      return;
    write(HttpAnswer::text(400, "not a request of HTTP/1.1\n"), false);
  }

  HttpAnswer answer_to(const http::request<http::string_body>& request) const {
    const auto host = request[http::field::host];
    if (!names_this_server({host.data(), host.size()}, port_))
      return HttpAnswer::text(421, fmt::format("this server answers only to 127.0.0.1:{0} and "
                                               "localhost:{0}; forward the same port\n",
                                               port_));
    if (request.method() != http::verb::get && request.method() != http::verb::head)
      return HttpAnswer::text(405, "only GET and HEAD\n");
    const std::string_view target(request.target().data(), request.target().size());
    try {
      return answer_(target.substr(0, target.find('?')));
    } catch (const std::exception& error) {
      return HttpAnswer::text(500, error_text(error) + "\n");
    }
  }

  void write(HttpAnswer answer, bool keeps_open) {
    const bool is_head = parser_->is_header_done() && parser_->get().method() == http::verb::head;
    response_ = {};
    response_.result(static_cast<unsigned>(answer.status));
    response_.set(http::field::content_type, answer.type);
    response_.set(http::field::cache_control, "no-store");
    response_.set("X-Content-Type-Options", "nosniff");
    response_.set("Content-Security-Policy", kContentPolicy);
    response_.keep_alive(keeps_open);
    body_ = std::move(answer.body);
    if (!is_head) response_.body() = {body_->data(), body_->size()};
    response_.content_length(body_->size());
    serializer_ = std::make_unique<Serializer>(response_);
    serializer_->split(is_head);
    stream_.expires_after(kPatience);
    const auto done = [self = shared_from_this(), keeps_open](beast::error_code error, size_t) {
      self->body_.reset();
      if (!error && keeps_open) return self->read();
      beast::error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    };
    if (is_head) {
      http::async_write_header(stream_, *serializer_, done);
    } else {
      http::async_write(stream_, *serializer_, done);
    }
  }

  uint16_t port_;
  bool is_idle_ = false;
  beast::tcp_stream stream_;
  const HttpServer::Answer& answer_;
  beast::flat_buffer buffer_;
  std::unique_ptr<Parser> parser_;  // Parses the current request.
  std::shared_ptr<const std::string> body_;
  http::response<Body> response_;  // Its body is body_.
  std::unique_ptr<Serializer> serializer_;
};

}  // namespace

struct HttpServer::Impl {
  explicit Impl(Answer given) : answer(std::move(given)) {}

  void accept() {
    acceptor.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error) {
        add(std::move(socket));
        return accept();
      }
      // Too many open files, for example: others close meanwhile.
      retry.expires_after(std::chrono::milliseconds(100));
      retry.async_wait([this](beast::error_code ended) {
        if (!ended) accept();
      });
    });
  }

  // Makes room by closing the connection that has been idle longest, if there are too many.
  void add(tcp::socket socket) {
    std::erase_if(connections, [](const auto& each) { return each.expired(); });
    if (connections.size() >= kMostConnections) {
      const auto idle = std::ranges::find_if(
          connections, [](const auto& each) { return each.lock()->is_idle(); });
      if (idle == connections.end()) return;  // All are being answered.
      idle->lock()->close();
      connections.erase(idle);
    }
    beast::error_code left;  // The browser may have.
    socket.remote_endpoint(left);
    if (left) return;
    const auto connection = std::make_shared<Connection>(std::move(socket), answer);
    connections.push_back(connection);
    connection->read();
  }

  Answer answer;  // Outlives the connections, which the context owns.
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  asio::steady_timer retry{context};
  std::vector<std::weak_ptr<Connection>> connections;  // Oldest first.
};

HttpAnswer HttpAnswer::text(int status, std::string body) {
  return {status, "text/plain; charset=utf-8",
          std::make_shared<const std::string>(std::move(body))};
}

HttpServer::HttpServer(uint16_t port, Answer answer)
    : impl_(std::make_unique<Impl>(std::move(answer))) {
  const tcp::endpoint place(asio::ip::address_v4::loopback(), port);
  beast::error_code error;
  impl_->acceptor.open(place.protocol(), error);
  // Without it a port cannot be used again for a minute after its server has ended.
  if (!error) impl_->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) impl_->acceptor.bind(place, error);
  if (!error) impl_->acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use)
    fail("--port={}: another program uses this port; give another, or none for one that is free",
         port);
  if (error == asio::error::access_denied)
    fail("--port={}: no permission; give a port of at least 1024, or none for one that is free",
         port);
  if (error) fail("cannot listen on 127.0.0.1:{}: {}", port, error.message());
}

HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

void HttpServer::run() {
  asio::signal_set signals(impl_->context, SIGINT, SIGTERM, SIGHUP);
  signals.async_wait([this](beast::error_code error, int) {
    if (!error) impl_->context.stop();
  });
  impl_->accept();
  impl_->context.run();
}

void HttpServer::stop() { impl_->context.stop(); }

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tasks/report/http_server.h"

#include <chrono>
#include <csignal>
#include <memory>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

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

// A page of another site whose name leads to this machine must not read the run: requests must
// name this machine.
bool names_this_machine(std::string_view host) {
  const std::string_view name = host.substr(0, host.rfind(':'));
  return name == "127.0.0.1" || name == "localhost";
}

using Parser = http::request_parser<http::string_body>;
using Serializer = http::response_serializer<http::string_body>;

// One connection. It keeps itself alive while an operation is pending.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const HttpServer::Answer& answer)
      : stream_(std::move(socket)), answer_(answer) {}

  void read() {
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
    if (!error) return write(answer_to(parser_->get()), parser_->get().keep_alive());
    // The browser has left, or is silent.
    if (error == http::error::end_of_stream || error == beast::error::timeout ||
        error.category() == boost::system::system_category() ||
        error.category() == asio::error::get_misc_category())
      return;
    write({400, "text/plain; charset=utf-8", "not a request of HTTP/1.1\n"}, false);
  }

  HttpAnswer answer_to(const http::request<http::string_body>& request) const {
    constexpr const char* kText = "text/plain; charset=utf-8";
    const auto host = request[http::field::host];
    if (!names_this_machine({host.data(), host.size()}))
      return {421, kText, "this server answers only to 127.0.0.1 and localhost\n"};
    if (request.method() != http::verb::get && request.method() != http::verb::head)
      return {405, kText, "only GET and HEAD\n"};
    const std::string_view target(request.target().data(), request.target().size());
    try {
      return answer_(target.substr(0, target.find('?')));
    } catch (const std::exception& error) {
      return {500, kText, error_text(error) + "\n"};
    }
  }

  void write(HttpAnswer answer, bool keeps_open) {
    const bool is_head = parser_->is_header_done() && parser_->get().method() == http::verb::head;
    response_ = {};
    response_.result(static_cast<unsigned>(answer.status));
    response_.set(http::field::content_type, answer.type);
    response_.set(http::field::cache_control, "no-store");
    response_.set("X-Content-Type-Options", "nosniff");
    response_.keep_alive(keeps_open);
    if (is_head) {
      response_.content_length(answer.body.size());
    } else {
      response_.body() = std::move(answer.body);
      response_.prepare_payload();
    }
    serializer_ = std::make_unique<Serializer>(response_);
    serializer_->split(is_head);
    stream_.expires_after(kPatience);
    const auto done = [self = shared_from_this(), keeps_open](beast::error_code error, size_t) {
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

  beast::tcp_stream stream_;
  const HttpServer::Answer& answer_;
  beast::flat_buffer buffer_;
  std::unique_ptr<Parser> parser_;  // Of the request under way.
  http::response<http::string_body> response_;
  std::unique_ptr<Serializer> serializer_;
};

}  // namespace

struct HttpServer::Impl {
  explicit Impl(Answer given) : answer(std::move(given)) {}

  void accept() {
    acceptor.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error) {
        std::make_shared<Connection>(std::move(socket), answer)->read();
        return accept();
      }
      // Too many open files, for example: others close meanwhile.
      retry.expires_after(std::chrono::milliseconds(100));
      retry.async_wait([this](beast::error_code ended) {
        if (!ended) accept();
      });
    });
  }

  Answer answer;  // Outlives the connections, which the context owns.
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  asio::steady_timer retry{context};
};

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

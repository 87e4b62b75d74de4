// SPDX-License-Identifier: Apache-2.0
#include "tasks/report/watch.h"

#include <chrono>
#include <string_view>

#include <fmt/format.h>

#include "tasks/report/http_server.h"
#include "tasks/report/report.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kRefresh(3);

}  // namespace

void watch_run(const std::filesystem::path& run_directory, uint16_t port,
               const std::function<void(const std::string& address)>& ready) {
  RunReport run(run_directory);
  HttpServer server(port, [&run](std::string_view path) -> HttpAnswer {
    if (path == "/") {
      run.update();
      return {200, "text/html; charset=utf-8", run_page(run, kRefresh)};
    }
    if (path == "/data.json") {
      run.update();
      return {200, "application/json", page_data(run, kRefresh)};
    }
    return {404, "text/plain; charset=utf-8", "there are / and /data.json\n"};
  });
  ready(fmt::format("http://127.0.0.1:{}/", server.port()));
  server.run();
}

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tasks/report/watch.h"

#include <chrono>
#include <memory>
#include <string>
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
  std::shared_ptr<const std::string> page, data;  // Of the run as it is; null: not made yet.
  HttpServer server(port, [&](std::string_view path) -> HttpAnswer {
    if (path != "/" && path != "/data.json")
      return HttpAnswer::text(404, "there are / and /data.json\n");
    if (run.update()) page = data = nullptr;
    const bool is_page = path == "/";
    if (is_page && !page) page = std::make_shared<const std::string>(run_page(run, kRefresh));
    if (!is_page && !data) data = std::make_shared<const std::string>(page_data(run, kRefresh));
    return {200, is_page ? "text/html; charset=utf-8" : "application/json", is_page ? page : data};
  });
  ready(fmt::format("http://127.0.0.1:{}/", server.port()));
  server.run();
}

}  // namespace tessera

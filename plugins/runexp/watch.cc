// SPDX-License-Identifier: Apache-2.0
// --watch: the report of a run on this machine, with new data while the run goes on.
#include <chrono>
#include <functional>

#include <fmt/ostream.h>

#include "plugins/runexp/commands.h"
#include "tasks/report/http_server.h"
#include "tasks/report/report.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kRefresh(3);

// Serves the report of a run, refreshed while the run goes on, until Ctrl-C. Port 0: one that is
// free. `ready` is called with the address of the page ("http://127.0.0.1:40213/") when a browser
// may open it. Error if the directory is not a run's, or the port cannot be used.
void watch_run(const std::filesystem::path& run_directory, uint16_t port,
               const std::function<void(const std::string& address)>& ready) {
  RunReport run(run_directory);
  std::shared_ptr<const std::string> page, data;  // Current page and data; null: not made yet.
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

struct Watch {
  static constexpr CommandInfo kInfo{
      .flag = "watch", .summary = "serve that report, with new data while the run goes on"};
  std::filesystem::path watch;
  int64_t port = 0;
  FIELDS(About(watch, "the run's directory; Ctrl-C ends it", {.unit = "RUN"}),
         About(port, "of this machine; 0: one that is free", {.min = 0, .max = 65535}))

  CommandResult run(const CommandContext& context) const {
    if (!context.processes.is_first()) return check_printed();
    watch_run(watch, static_cast<uint16_t>(port), [&](const std::string& address) {
      fmt::print(context.out, "{} shows {}; Ctrl-C ends it\n", address, watch.string());
      context.out.flush();
    });
    return check_printed();
  }
};

}  // namespace

std::unique_ptr<Command> watch_command() { return command_of<Watch>(); }

}  // namespace tessera

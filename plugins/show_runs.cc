// SPDX-License-Identifier: Apache-2.0
#include "plugins/show_runs.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/ostream.h>

#include "core/io/file.h"
#include "tasks/report/http_server.h"
#include "tasks/report/report.h"
#include "tasks/report/run_comparison.h"
#include "tasks/run_directory/find_runs.h"

namespace tessera {
namespace {

constexpr size_t kSamePart = 200;  // Bytes at the start of all pages.
constexpr std::chrono::seconds kRefresh(3);

// Serves the report of a run, refreshed while the run goes on, until Ctrl-C. Port 0: one that is
// free. `ready` is called with the address of the page ("http://127.0.0.1:40213/") when a browser
// may open it. Error if the directory is not a run's, or the port cannot be used.
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

}  // namespace

void show_runs(const CommandLine& line, std::ostream& out) {
  if (line.action == CommandLine::Action::kReport) {
    fmt::print(out, "wrote {}\n", write_report(line.runs[0]).string());
  } else if (line.action == CommandLine::Action::kCompare) {
    std::vector<std::filesystem::path> runs;
    for (const std::filesystem::path& given : line.runs)
      for (std::filesystem::path& run : runs_of(given)) runs.push_back(std::move(run));
    const RunComparison comparison = compare_runs(runs);
    // The page has what the runs have: if others cannot read one, they cannot read the page.
    for (const std::filesystem::path& run : runs)
      if ((std::filesystem::status(run).permissions() & std::filesystem::perms::others_read) ==
          std::filesystem::perms::none)
        ::umask(S_IRWXG | S_IRWXO);
    const std::filesystem::path file = line.run.output.empty() ? "compare.html" : line.run.output;
    require_same_kind(file, comparison.page.substr(0, kSamePart), "a page of --compare");
    write_file_atomically(file, comparison.page);
    fmt::print(out, "{}\nwrote {}\n", comparison_text(comparison), file.string());
  } else {
    watch_run(line.runs[0], line.port, [&](const std::string& address) {
      fmt::print(out, "{} shows {}; Ctrl-C ends it\n", address, line.runs[0].string());
      out.flush();
    });
  }
}

}  // namespace tessera

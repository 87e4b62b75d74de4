// SPDX-License-Identifier: Apache-2.0
// The pages in a real browser, without a window: at the widths of a phone and of a desktop, in both
// colour schemes, no message is in the console, every chart has drawn points, and nothing is wider
// than the page.
#include <filesystem>
#include <regex>
#include <string>

#include <fmt/format.h>

#include "core/base/process.h"
#include "core/io/json.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/report/report.h"
#include "tasks/run/report/run_comparison.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/run/report/sample_run.h"

namespace tessera {
namespace {

// Run in the page after its own script: its findings are attributes of the frame around it.
constexpr const char* kProbe = R"(<script>
for (const each of document.querySelectorAll("details")) each.open = true;
requestAnimationFrame(() => requestAnimationFrame(() => {
  const page = document.documentElement, found = {};
  const charts = [...document.querySelectorAll(".chart")];
  found.charts = charts.length;
  found.empty = charts.filter((chart) => ![...chart.querySelectorAll(".line, .dot")].some(
    (mark) => mark.getBBox().width + mark.getBBox().height > 0)).length;
  found.width = page.clientWidth;
  found.overflow = page.scrollWidth - page.clientWidth;
  found.wide = [...document.querySelectorAll("main *")].filter((each) =>
    each.getBoundingClientRect().right > page.clientWidth + 1 &&
    !each.closest(".scroll, .graph, svg")).length;
  found.paper = getComputedStyle(document.body).backgroundColor;
  found.title = document.title;
  found.layers = document.querySelectorAll(".program").length;
  found.bold = document.querySelectorAll(".sample b, pre b").length;
  found.losses = charts.slice(0, 2).map((chart) =>
    `${chart.querySelector("h3").textContent}: ${chart.querySelector(".legend").textContent}`);
  found.figures = document.querySelector(".figures")?.textContent ?? "";
  found.sample = document.querySelector(".sample")?.textContent ?? "";
  window.frameElement.dataset.found = JSON.stringify(found);
}));
</script>)";

std::string as_attribute(std::string text) {
  text = std::regex_replace(text, std::regex("&"), "&amp;");
  return std::regex_replace(text, std::regex("\""), "&quot;");
}

std::string from_attribute(std::string text) {
  for (const auto& [code, plain] : {std::pair{"&quot;", "\""}, {"&lt;", "<"}, {"&gt;", ">"}})
    text = std::regex_replace(text, std::regex(code), plain);
  return std::regex_replace(text, std::regex("&amp;"), "&");
}

// Keeps the page from being loaded, which is when the browser prints it, until each frame has its
// findings: a document that is open for writing holds back the load event of the page around it.
// (A budget of virtual time can end before the frames are drawn, on a busy machine.)
constexpr const char* kWaitForProbes = R"(<script>
const hold = document.body.appendChild(document.createElement("iframe")).contentDocument;
hold.open();
const wait = setInterval(() => {
  if (document.querySelector('iframe[srcdoc]:not([data-found])')) return;
  clearInterval(wait);
  hold.close();
}, 20);
</script>)";

// The pages in frames of both widths, as one page: a window of the browser cannot be as narrow as a
// phone.
std::string framed(const std::vector<std::string>& pages) {
  std::string frames = "<!doctype html><body>";
  for (const std::string& page : pages)
    for (const int width : {375, 1280})
      frames += fmt::format("<iframe style=\"width:{}px;height:3000px\" srcdoc=\"{}\"></iframe>",
                            width, as_attribute(page + kProbe));
  return frames + kWaitForProbes;
}

// Returns the results of the probes in each frame. The console must be empty.
std::vector<Json> look_at(const TemporaryDirectory& folder, bool is_dark) {
  const Outcome seen =
      shell(folder.path(),
            fmt::format("chromium --headless --no-sandbox --disable-gpu --enable-logging=stderr "
                        "--user-data-dir=profile --window-size=1400,1000 "
                        "--blink-settings=preferredColorScheme={} --dump-dom file://{}/frames.html",
                        is_dark ? 0 : 1, folder.path().string()),
            std::chrono::seconds(120));
  INFO(seen.errors);
  REQUIRE(seen.exit_code == 0);
  REQUIRE(seen.errors.find(":CONSOLE") == std::string::npos);
  std::vector<Json> found;
  const std::regex pattern("data-found=\"([^\"]*)\"");
  for (auto at = std::sregex_iterator(seen.out.begin(), seen.out.end(), pattern);
       at != std::sregex_iterator(); ++at)
    found.push_back(parse_json(from_attribute((*at)[1]), "found"));
  return found;
}

TEST_CASE("a browser draws the pages without a message, at two widths and in both themes") {
  if (!program_exists("chromium"))
    return skip_test("no chromium (Debian: chromium), which draws the report in this test");
  const TemporaryDirectory folder;
  write_sample_run(folder / "run", 3000);
  write_sample_run(folder / "other", 500);
  write_zipped(folder / "run/trace.json.gz", sample_trace());
  write_bytes(folder / "empty/hparams.toml", "# a.B\n");
  for (int i = 0; i < 7; ++i) write_sample_run(folder / fmt::format("sweep/trial_{}", i), 20 + i);
  write_bytes(folder / "sweep/trial_3/hparams.toml", "# sample.Run\n[task.model]\nwidth = 128\n");
  const std::vector<std::string> pages = {run_page(RunReport(folder / "run")),
                                          run_page(RunReport(folder / "empty")),
                                          compare_runs({folder / "run", folder / "other"}).page,
                                          compare_runs(runs_of(folder / "sweep")).page};
  write_bytes(folder / "frames.html", framed(pages));
  std::vector<std::string> papers;
  for (const bool is_dark : {false, true}) {
    const std::vector<Json> found = look_at(folder, is_dark);
    REQUIRE(found.size() == 2 * pages.size());
    for (size_t i = 0; i < found.size(); ++i) {
      INFO("dark " << is_dark << ", frame " << i);
      REQUIRE(found[i].at("width").as_integer() > (i % 2 == 0 ? 350 : 1200));
      REQUIRE(found[i].at("width").as_integer() <= (i % 2 == 0 ? 375 : 1280));
      REQUIRE(found[i].at("overflow").as_integer() == 0);
      REQUIRE(found[i].at("wide").as_integer() == 0);
      REQUIRE(found[i].at("empty").as_integer() == 0);
      REQUIRE(found[i].at("charts").as_integer() >= (i / 2 == 1 ? 0 : 8));
      REQUIRE(found[i].at("bold").as_integer() == 0);
      REQUIRE(found[i].at("title").as_string() != "broken");
    }
    REQUIRE(found[0].at("layers").as_integer() == 5);  // Three phases, and layers of the first.
    // Training and held-out values on one axis are of one metric; the loss is near 1.5.
    REQUIRE(found[0].at("losses").as_array()[0].as_string() ==
            "Log-perplexity, nats per token: training 5validation 4");
    REQUIRE_THAT(found[0].at("losses").as_array()[1].as_string(),
                 Catch::StartsWith("Loss, nats per token: training 1.") &&
                     Catch::EndsWith("validation 4.5"));
    REQUIRE_THAT(found[0].at("figures").as_string(),
                 Catch::Contains("Training log-perplexity5Held out, validation4"));
    REQUIRE(found[0].at("sample").as_string() == std::string("To be") + kHostileText);
    papers.push_back(found[0].at("paper").as_string());
  }
  REQUIRE(papers[0] != papers[1]);
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// The report of a run from its files: whole, half written, damaged, or of no run.
#include "tasks/run/report/report.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/run/report/page_of_run.h"
#include "tests/tasks/run/report/sample_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

TEST_CASE("the report has what the files of the run have, and no text ends its script") {
  const TemporaryDirectory folder;
  write_sample_run(folder / "run");
  const std::string page = read_bytes(write_report(folder / "run"));
  const Json run = data_of(page).at("runs").as_array()[0];
  REQUIRE(run.at("experiment").as_string() == "sample.Run");
  REQUIRE(run.at("state").as_string() == "failed");
  REQUIRE(run.at("reason").as_string() == kHostileText);
  REQUIRE(run.at("step").as_integer() == 120);
  REQUIRE(run.at("num_steps").as_integer() == 120);
  REQUIRE(run.at("plan").at("memory_per_device").at("activations").as_integer() == 2000);
  REQUIRE(run.at("samples").as_array()[0].at("continuation").as_string() == kHostileText);
  REQUIRE(run.at("series").at("loss").at("m").as_array().size() == 120);
  REQUIRE(run.at("series").find("eval/validation/log_pplx") != nullptr);
  REQUIRE(run.at("layers").find("lm.x_layers[3].ffn.expert_load_max") != nullptr);
  REQUIRE_THAT(run.at("graph").at("image").as_string(),
               Catch::StartsWith("data:image/svg+xml;base64,"));
  REQUIRE(run.at("notes").as_array().empty());
  // A data block and the page's own script.
  size_t scripts = 0;
  for (size_t at = 0; (at = page.find("<script", at)) != std::string::npos; ++at) ++scripts;
  REQUIRE(scripts == 2);
  REQUIRE(page.find("<!--") == std::string::npos);
  REQUIRE(page.find("http://") == page.find("http://www.w3.org/2000/svg"));
}

TEST_CASE("the report has the optimised program with the times of the trace") {
  const TemporaryDirectory folder;
  write_sample_run(folder / "run");
  const auto data = [&] {
    return data_of(run_page(RunReport(folder / "run"))).at("runs").as_array()[0];
  };
  REQUIRE(data().at("program").at("rows").as_array().size() == 4);
  REQUIRE(data().at("program").at("memory").at("peak_launch").as_integer() == 41);
  REQUIRE(data().at("row_seconds").is_null());
  write_zipped(folder / "run/trace.json.gz", sample_trace());
  const Json seconds = data().at("row_seconds");
  REQUIRE(seconds.as_array().size() == 4);
  REQUIRE(seconds.as_array()[0].as_number() == Approx(500e-6));
  REQUIRE(seconds.as_array()[1].is_null());
  REQUIRE(seconds.as_array()[3].as_number() == Approx(250e-6));
  // A file of an older or newer version lacks what the page reads.
  write_bytes(folder / "run/program.json", R"({"rows": [{"phase": "forward"}]})");
  REQUIRE(data().find("program") == nullptr);
  REQUIRE_THAT(data().at("notes").as_array()[0].as_string(),
               Contains("program.json is not shown") && Contains("path"));
}

TEST_CASE("titles and data are escaped") {
  const std::string page = report_page("a</title><b>&", R"({"x": "</script><!--"})");
  REQUIRE_THAT(page, Contains("<title>a&lt;/title&gt;&lt;b&gt;&amp;</title>") &&
                         Contains(R"({"x": "\u003c/script>\u003c!--"})"));
  REQUIRE(data_of(page).at("x").as_string() == "</script><!--");
}

TEST_CASE("a run that is half written has a report of what is there, with notes") {
  const TemporaryDirectory folder;
  write_bytes(folder / "run/hparams.toml", "# a.B\n[task.train\nnum_train_steps = ");
  write_bytes(folder / "run/metrics.jsonl",
              "{\"step\": 1, \"loss\": 2}\n{\"ste\n{\"step\": 2, \"lo");
  write_bytes(folder / "run/plan.json", "{\"parameters\": 3");
  write_bytes(folder / "run/program.json", "{\"rows\": [");
  write_bytes(folder / "run/trace.json.gz", "\x1f\x8b");
  write_bytes(folder / "run/samples.jsonl", "{\"step\": 1, \"prompt\": \"\", \"conti");
  const Json run = data_of(read_bytes(write_report(folder / "run"))).at("runs").as_array()[0];
  REQUIRE(run.at("state").as_string() == "unknown");
  REQUIRE(run.at("step").as_integer() == 1);
  REQUIRE(run.find("plan") == nullptr);
  std::string notes;
  for (const Json& note : run.at("notes").as_array()) notes += note.as_string() + "\n";
  REQUIRE_THAT(notes, Contains("hparams.toml is not shown") && Contains("plan.json is not shown") &&
                          Contains("program.json is not shown") &&
                          Contains("trace.json.gz is not shown") &&
                          Contains("1 line of metrics.jsonl is not complete"));
}

TEST_CASE("a run without metrics has a report") {
  const TemporaryDirectory folder;
  write_bytes(folder / "run/hparams.toml", "# a.B\n");
  const Json run = data_of(read_bytes(write_report(folder / "run"))).at("runs").as_array()[0];
  REQUIRE(run.at("state").as_string() == "empty");
  REQUIRE(run.at("series").as_object().empty());
}

TEST_CASE("what is no run is refused, with the runs that are near") {
  const TemporaryDirectory folder;
  write_sample_run(folder / "runs/char_lm", 2);
  const auto problem = [](const fs::path& path) { return error_of([&] { write_report(path); }); };
  REQUIRE_THAT(problem(folder / "runs/char_ml"), Contains("did you mean 'char_lm'?"));
  REQUIRE_THAT(problem(folder / "runs"), Contains("is not a run's directory") &&
                                             Contains((folder / "runs/char_lm").string()));
  REQUIRE_THAT(problem(folder / "runs/char_lm/plan.json"), Contains("is a file"));
  REQUIRE_THAT(problem(""), Contains("no such directory"));
  REQUIRE_FALSE(fs::exists(folder / "runs/report.html"));
}

TEST_CASE("the report of a long run has a few hundred kilobytes") {
  const TemporaryDirectory folder;
  write_sample_run(folder / "run", 2);
  {
    std::ofstream log(folder / "run/metrics.jsonl", std::ios::app);
    for (int64_t step = 3; step <= 100'000; ++step)
      log << "{\"step\": " << step << ", \"loss\": " << 1.0 / static_cast<double>(step) << "}\n";
  }
  REQUIRE(fs::file_size(write_report(folder / "run")) < 500'000);
}

TEST_CASE("a live report is written when asked, says that the run is running, and fails softly") {
  const TemporaryDirectory folder;
  write_bytes(folder / "run/hparams.toml", "# a.B\n");
  write_bytes(folder / "run/metrics.jsonl", "{\"event\": \"start\", \"step\": 0}\n");
  Console console(Console::Mode::kSilent);
  LiveReport report(folder / "run", console);
  report.refresh();  // Too early.
  REQUIRE_FALSE(fs::exists(folder / "run/report.html"));
  report.write();
  const Json run = data_of(read_bytes(folder / "run/report.html")).at("runs").as_array()[0];
  REQUIRE(run.at("state").as_string() == "running");
  fs::remove(folder / "run/report.html");
  fs::create_directories(folder / "run/report.html/folder");
  REQUIRE_NOTHROW(report.write());
  REQUIRE(fs::is_directory(folder / "run/report.html"));
}

}  // namespace
}  // namespace tessera

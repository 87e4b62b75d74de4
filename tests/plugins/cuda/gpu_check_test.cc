// SPDX-License-Identifier: Apache-2.0
// Tests the program gpu_check on the virtual GPU: its stages, resuming, and reports of faults.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <fmt/format.h>

#include "core/io/file.h"
#include "plugins/cuda/check/report.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera::cuda {
namespace {

namespace filesystem = std::filesystem;

class GpuCheck {
 public:
  Outcome run(const std::string& arguments, const std::string& environment = "") const {
    return shell(folder_.path(), command(arguments, environment), std::chrono::minutes(20));
  }
  std::string command(const std::string& arguments, const std::string& environment = "") const {
    return fmt::format(
        "env TESSERA_CUDA_DRIVER='{0}/lib/virtual_gpu/libcuda.so.1' TESSERA_VIRTUAL_GPU_PRINT=0 "
        "XDG_CACHE_HOME=cache {1} '{0}/bin/gpu_check' --tiny {2}",
        TESSERA_BINARY_DIR, environment, arguments);
  }
  filesystem::path folder() const { return folder_.path(); }
  filesystem::path report_file() const { return folder() / "runs/gpu_check/report.toml"; }
  Report report() const { return read_toml<Report>(report_file()); }
  Findings item(const std::string& name) const {
    const Report all = report();
    INFO(name);
    REQUIRE(all.find(name) != nullptr);
    return *all.find(name);
  }
  std::map<std::string, std::string> statuses() const {
    std::map<std::string, std::string> all;
    for (const Findings& each : report().items) all[each.name] = each.status;
    return all;
  }

 private:
  TemporaryDirectory folder_;
};

using Statuses = std::map<std::string, std::string>;

// Returns the cell of a column.
std::string cell(const Row& row, const std::string& column) {
  const std::string before =
      row.columns.substr(0, ("|" + row.columns + "|").find("|" + column + "|"));
  return row.cells.at(static_cast<size_t>(std::count(before.begin(), before.end(), '|')));
}
double number(const Row& row, const std::string& column) { return std::stod(cell(row, column)); }

TEST_CASE("gpu_check runs items of every stage and writes a report to send back") {
  const GpuCheck check;
  const std::string filter =
      "versions|GPUs$|in the binary|launch norm|op softmax$|products nt|softmax|curve f32$|time "
      "product|time rms_norm/bf16|preset GPT-2 tiny$";
  const Outcome outcome = check.run(fmt::format("--filter='{}'", filter));
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  const Statuses statuses = check.statuses();
  REQUIRE(statuses.size() == 17);
  for (const auto& [name, status] : statuses) {
    INFO(name);
    // Items that need NVIDIA's driver or libraries.
    const bool is_left_out = name.find("check ") != name.npos ||
                             name.find(", with ") != name.npos ||
                             name.find("time product") != name.npos;
    REQUIRE(status == (is_left_out ? "not tested" : "passed"));
  }
  // Every kernel of the binary has a row.
  REQUIRE(check.item("kernels in the binary").rows.size() > 100);
  const std::vector<Row> preset = check.item("preset GPT-2 tiny").rows;
  for (const char* const column : {"tokens/s", "predicted ms", "predicted MFU %", "by launches ms"})
    REQUIRE(number(preset.at(0), column) > 0);
  const std::vector<Row> curves = check.item("curve f32").rows;
  REQUIRE(curves.size() == 3);
  REQUIRE(cell(curves[0], "run") == "gpu");
  REQUIRE(number(curves[0], "largest difference") > 0);  // The two devices did run.
  for (const size_t i : {1, 2}) REQUIRE(number(curves[i], "largest difference") == 0);
  REQUIRE(cell(curves[1], "run") == "gpu without a CUDA graph");
  REQUIRE(cell(curves[2], "run") == "resumed");
  // Each item says which implementation computed it; the summary counts these.
  REQUIRE_THAT(
      outcome.out,
      Catch::Contains("to send back: ") && Catch::Contains("own ms") &&
          Catch::Matches("(.|\\n)*2 op softmax  .* passed +own kernels [0-9]+\\n(.|\\n)*") &&
          Catch::Contains("nodes by implementation: own kernels "));
  const Outcome archive = shell(check.folder(), "tar -tzf runs/gpu_check/gpu_check.tar.gz");
  for (const char* const file : {"report.toml", "report.txt", "logs/preset_GPT_2_tiny.txt"})
    REQUIRE_THAT(archive.out, Catch::Contains(file));
}

TEST_CASE(
    "gpu_check --campaign writes one file with launch costs and without names of the machine") {
  const GpuCheck check;
  const Outcome outcome = check.run(
      "--campaign --filter='versions|launch softmax|op softmax$|preset' --output=maria_home/out",
      "USER=maria HOME=/home/maria TESSERA_CUDNN=/home/maria/libs/libcudnn.so.9");
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE_THAT(outcome.out, Catch::Contains("to send back: ") && Catch::Contains("campaign.toml"));
  const std::string text = read_file(check.folder() / "maria_home/out/campaign.toml");
  for (const char* const what :
       {"# nodes by implementation: own kernels ", "3 passed", "libcudnn.so.9", "measured / price",
        "GPT-2 tiny, longer", "\n[launches]\n", "\n\"einsum ("})
    REQUIRE_THAT(text, Catch::Contains(what));
  char host[256] = {};
  REQUIRE(::gethostname(host, sizeof(host) - 1) == 0);
  for (const std::string& name :
       {std::string("maria"), std::string("/home"), std::string(host), check.folder().string()}) {
    INFO(name);
    REQUIRE(text.find(name) == std::string::npos);
  }
  // runexp accepts the launch costs of each recipe as measured.
  for (const std::string recipe : {"model_dims=16 --set global_batch_size=2 --set seq_len=16",
                                   "model_dims=24 --set global_batch_size=2 --set seq_len=16",
                                   "model_dims=16 --set global_batch_size=1 --set seq_len=24"}) {
    const Outcome plan = shell(
        check.folder(),
        fmt::format("'{}/bin/runexp' --exp=bench.Gpt2Base --mode=plan --hardware=maria_home/out/"
                    "campaign.toml --set num_layers=1 --set num_heads=2 --set vocab_size=264 "
                    "--set compute_dtype=bf16 --set task.model.lm_tpl.stacked_transformer_tpl."
                    "block_tpl.ffn_tpl.activation_tpl.approximate=true --set {}",
                    TESSERA_BINARY_DIR, recipe));
    INFO(plan.out << plan.errors);
    REQUIRE(plan.exit_code == 0);
    REQUIRE_THAT(plan.out,
                 Catch::Contains("launch costs: 100.0 % of the time of launches is measured"));
  }
}

TEST_CASE("gpu_check reports kernels that fault, continues, and runs them again when asked") {
  const GpuCheck check;
  const std::string filter = "--filter='versions|launch (softmax|norm)|GPUs$'";
  const Outcome failed = check.run(filter, "TESSERA_VIRTUAL_GPU_FAULT=launch_failure:3");
  INFO(failed.out << failed.errors);
  REQUIRE(failed.exit_code == 1);
  REQUIRE(check.statuses() == Statuses{{"versions", "passed"},
                                       {"GPUs", "passed"},
                                       {"launch norm", "failed"},
                                       {"launch softmax", "failed"}});
  REQUIRE_THAT(failed.out, Catch::Contains("CUDA_ERROR_LAUNCH_FAILED") &&
                               Catch::Contains("run again: failed") &&
                               Catch::Contains("none of the features"));
  // Without the flag the report stays as it is.
  REQUIRE(check.run(filter).exit_code == 1);
  REQUIRE(check.run(filter + " --again").exit_code == 0);
  for (const auto& [name, status] : check.statuses()) REQUIRE(status == "passed");
}

const std::string kCublasLt =
    fmt::format("TESSERA_CUBLASLT='{}/lib/virtual_gpu/fake_cublaslt.so' ", TESSERA_BINARY_DIR);

TEST_CASE("gpu_check names the feature that is at fault") {
  const GpuCheck check;
  const Outcome outcome =
      check.run("--filter='products nn'", kCublasLt + "TESSERA_FAKE_CUBLASLT_FAULT=bias");
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 1);
  REQUIRE(check.statuses().at("products nn") == "passed");  // By our own kernels.
  REQUIRE(check.item("products nn, with cuBLASLt").notes.back() ==
          "at fault: epilogues in cuBLASLt, or cuBLASLt");
}

TEST_CASE("gpu_check counts the nodes of a library, and compares them with our own kernels") {
  const std::string filter = "--filter='products tn, with|time product/bf16'";
  const GpuCheck check;
  REQUIRE(check.run(filter, kCublasLt).exit_code == 0);
  for (const std::string name : {"products tn, with cuBLASLt", "time product/bf16/40x16x24"}) {
    INFO(name);
    Findings item = check.item(name);
    REQUIRE(item.status == "passed");
    REQUIRE(item.nodes["cuBLASLt"] >= 3);
  }
  REQUIRE(cell(check.item("time product/bf16/40x16x24").rows.at(0), "by") == "cuBLASLt");
  const GpuCheck wrong;
  const Outcome outcome =
      wrong.run("--filter=time.product/bf16", kCublasLt + "TESSERA_FAKE_CUBLASLT_FAULT=product");
  REQUIRE(outcome.exit_code == 1);
  REQUIRE_THAT(outcome.out,
               Catch::Contains(" by cuBLASLt, but ") && Catch::Contains(" by own kernels"));
}

TEST_CASE("gpu_check that is killed resumes where it stopped") {
  const GpuCheck check;
  const std::string arguments = "--filter='versions|GPUs$|in the binary|op (concat|slice)'";
  {
    Background first(check.folder(), check.command(arguments));
    REQUIRE(comes_true([&] {
      return filesystem::exists(check.report_file()) &&
             read_file(check.report_file()).find("status") != std::string::npos;
    }));
    REQUIRE(::kill(first.pid(), SIGKILL) == 0);
    REQUIRE(first.wait(std::chrono::seconds(60)) == -SIGKILL);
  }
  const Statuses some = check.statuses();
  const Outcome outcome = check.run(arguments);
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE(check.statuses().size() > some.size());
  for (const auto& [name, status] : check.statuses()) {
    INFO(name);
    REQUIRE(status == "passed");
    // Items of the first call did not run again.
    REQUIRE((outcome.out.find(" " + name + " ") == std::string::npos) == some.contains(name));
  }
}

TEST_CASE("gpu_check does not run an item a third time that stopped the machine twice") {
  const GpuCheck check;
  REQUIRE(check.run("--filter='versions$'").exit_code == 0);
  Report report = check.report();
  report.running = "GPUs", report.attempts = 2;
  write_toml(check.report_file(), report);
  const Outcome outcome = check.run("--filter='GPUs$'");
  REQUIRE(outcome.exit_code == 1);
  REQUIRE_THAT(outcome.out, Catch::Contains("stopped in this item twice"));
}

TEST_CASE("gpu_check runs launches under compute-sanitizer, and starts nothing after its budget") {
  const GpuCheck check;
  const filesystem::path tool = check.folder() / "sanitizer";
  std::ofstream(tool) << "#!/bin/sh\n"
                         "name=$2; code=$4; shift 4\n"
                         "\"$@\" || exit\n"
                         "test $name != racecheck || exit $code\n";
  filesystem::permissions(tool, filesystem::perms::owner_all);
  const std::string environment = "TESSERA_COMPUTE_SANITIZER=" + tool.string();
  const std::string arguments = "--filter='^3.*softmax'";
  const Outcome short_run = check.run(arguments + " --budget=0.0000001", environment);
  REQUIRE(short_run.exit_code == 0);
  REQUIRE_THAT(short_run.out, Catch::Contains("the time of --budget is over"));
  REQUIRE(check.statuses().size() <= 1);
  const Outcome outcome = check.run(arguments, environment);
  INFO(outcome.out << outcome.errors);
  REQUIRE(check.statuses() == Statuses{{"memcheck softmax", "passed"},
                                       {"racecheck softmax", "failed"},
                                       {"synccheck softmax", "passed"}});
  REQUIRE_THAT(outcome.out, Catch::Contains("compute-sanitizer racecheck has found errors"));
}

TEST_CASE("gpu_check says what is wrong with its flags and its report") {
  const GpuCheck check;
  const auto refused = [&](const std::string& arguments, const std::string& text) {
    const Outcome outcome = check.run(arguments);
    REQUIRE(outcome.exit_code == 2);
    REQUIRE_THAT(outcome.errors, Catch::StartsWith("gpu_check: ") && Catch::Contains(text));
  };
  refused("--filters=1", "unknown flag --filters; did you mean --filter?");
  refused("--budget=long", "--budget=long: expected a number, above 0");
  refused("--filter='('", "no regular expression");
  refused("--output", "--output needs a value; --help says which");
  refused("--tiny=1", "--tiny takes no value");
  const Outcome no_driver = check.run("", "TESSERA_CUDA_DRIVER=/nowhere/libcuda.so.1");
  REQUIRE(no_driver.exit_code == 2);
  REQUIRE_THAT(no_driver.errors, Catch::Contains("this machine has no NVIDIA driver: /nowhere/"));
  filesystem::create_directories(check.report_file().parent_path());
  write_toml(check.report_file(), Report{.about = "tessera 0.0.1"});
  refused("--filter=versions", "report.toml is of tessera 0.0.1, but this is tessera ");
}

TEST_CASE("gpu_check passes in all stages", "[full]") {
  const GpuCheck check;
  const Outcome outcome = check.run("", "TESSERA_VIRTUAL_GPU_SEED=0");
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE(check.statuses().size() > 150);
}

}  // namespace
}  // namespace tessera::cuda

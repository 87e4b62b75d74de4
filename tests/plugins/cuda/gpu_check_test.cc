// SPDX-License-Identifier: Apache-2.0
// The program gpu_check on the virtual GPU: its stages, resuming, and what it reports of faults.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <fmt/format.h>

#include "core/io/file.h"
#include "core/io/json.h"
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
  filesystem::path report_file() const { return folder() / "runs/gpu_check/report.json"; }
  Json report() const { return parse_json(read_file(report_file()), "report.json"); }
  const Json& item(const Json& report, const std::string& name) const {
    for (const Json& each : report.at("items").as_array())
      if (each.at("name").as_string() == name) return each;
    FAIL("the report has no item " << name);
    return report;
  }
  std::map<std::string, std::string> statuses() const {
    std::map<std::string, std::string> all;
    const Json json = report();
    for (const Json& each : json.at("items").as_array())
      all[each.at("name").as_string()] = each.at("status").as_string();
    return all;
  }

 private:
  TemporaryDirectory folder_;
};

using Statuses = std::map<std::string, std::string>;

TEST_CASE("gpu_check runs items of every stage and writes a report to send back") {
  const GpuCheck check;
  const std::string filter =
      "versions|GPUs$|in the binary|launch norm|op softmax$|products nt|softmax|curve f32$|curve "
      "f32, |time product|time rms_norm/bf16|preset";
  const Outcome outcome = check.run(fmt::format("--filter='{}'", filter));
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  const Statuses statuses = check.statuses();
  REQUIRE(statuses.size() == 20);
  for (const auto& [name, status] : statuses) {
    INFO(name);
    // What needs NVIDIA's driver or its libraries.
    const bool is_left_out = name.find("check ") != name.npos ||
                             name.find(", with ") != name.npos ||
                             name.find("time product") != name.npos;
    REQUIRE(status == (is_left_out ? "not tested" : "passed"));
  }
  const Json report = check.report();
  // Each kernel of the binary has a row.
  REQUIRE(check.item(report, "kernels in the binary").at("rows").as_array().size() > 100);
  const Json& preset = check.item(report, "preset tiny").at("rows").as_array().at(0);
  REQUIRE(preset.at("tokens/s").as_number() > 0);
  REQUIRE(preset.at("predicted ms").as_number() > 0);
  REQUIRE(preset.at("predicted MFU %").as_number() > 0);
  const Json& curve = check.item(report, "curve f32").at("rows").as_array().at(0);
  REQUIRE(curve.at("largest difference").as_number() > 0);  // The two devices did run.
  const Json& resumed =
      check.item(report, "curve f32, resumed: the same bits").at("rows").as_array().at(0);
  REQUIRE(resumed.at("largest difference").as_number() == 0);
  REQUIRE_THAT(outcome.out, Catch::Contains("to send back: ") && Catch::Contains("own ms") &&
                                Catch::Contains("nodes by implementation: own kernels "));
  const Outcome archive = shell(check.folder(), "tar -tzf runs/gpu_check/gpu_check.tar.gz");
  for (const char* const file : {"report.json", "report.txt", "logs/preset_tiny.txt"})
    REQUIRE_THAT(archive.out, Catch::Contains(file));
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
  const Json report = check.report();
  REQUIRE(check.item(report, "products nn, with cuBLASLt").at("verdict").as_string() ==
          "at fault: epilogues in cuBLASLt, or cuBLASLt");
}

TEST_CASE("gpu_check counts the nodes of a library, and compares them with our own kernels") {
  const std::string filter = "--filter='^products tn, with|^time product/bf16'";
  const GpuCheck check;
  REQUIRE(check.run(filter, kCublasLt).exit_code == 0);
  const Json report = check.report();
  for (const std::string name : {"products tn, with cuBLASLt", "time product/bf16/40x16x24"}) {
    INFO(name);
    const Json& item = check.item(report, name);
    REQUIRE(item.at("status").as_string() == "passed");
    REQUIRE(item.at("nodes").at("cuBLASLt").as_number() >= 3);
  }
  const Json& row = check.item(report, "time product/bf16/40x16x24").at("rows").as_array().at(0);
  REQUIRE(row.at("by").as_string() == "cuBLASLt");
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
             read_file(check.report_file()).find("\"status\"") != std::string::npos;
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
  REQUIRE(check.run("--filter='^versions$'").exit_code == 0);
  std::string text = read_file(check.report_file());
  const std::string running = "\"running\": \"\", \"attempts\": 0";
  REQUIRE(text.find(running) != std::string::npos);
  text.replace(text.find(running), running.size(), "\"running\": \"GPUs\", \"attempts\": 2");
  write_file_atomically(check.report_file(), text);
  const Outcome outcome = check.run("--filter='^GPUs$'");
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
  const std::string arguments = "--stage=3 --filter=softmax";
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
  refused("--stages=1", "unknown flag --stages; did you mean --stage?");
  refused("--stage=6", "--stage=6: '6' is not a stage; expected numbers from 1 to 5");
  refused("--stage=1,", "'' is not a stage");
  refused("--budget=long", "--budget=long: expected a number, above 0");
  refused("--device=cuda", "--device=cuda: expected numbers of GPUs, such as --device=0");
  refused("--filter='('", "no regular expression");
  refused("--output", "--output needs a value; --help says which");
  refused("--tiny=1", "--tiny takes no value");
  const Outcome no_driver = check.run("", "TESSERA_CUDA_DRIVER=/nowhere/libcuda.so.1");
  REQUIRE(no_driver.exit_code == 2);
  REQUIRE_THAT(no_driver.errors, Catch::Contains("this machine has no NVIDIA driver: /nowhere/"));
  filesystem::create_directories(check.report_file().parent_path());
  write_file_atomically(check.report_file(), R"({"about": "tessera 0.0.1", "items": []})");
  refused("--filter=versions", "report.json is of tessera 0.0.1, but this is tessera ");
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

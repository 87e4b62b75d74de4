// SPDX-License-Identifier: Apache-2.0
// Runs of runexp in a temporary folder: a two-layer transformer that trains 20 steps, on the CPU
// or, with --device=cuda, on the virtual GPU.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"

namespace tessera::cuda {

class TinyRun {
 public:
  TinyRun() { write_small_text(folder_.path(), 40); }

  const std::filesystem::path& folder() const { return folder_.path(); }

  // Runs runexp in the run directory `name`. `arguments` override the defaults. `environment`: for
  // example variables of the virtual GPU such as TESSERA_VIRTUAL_GPU_SEED.
  Outcome run(const std::string& name, const std::string& arguments,
              const std::map<std::string, std::string>& environment = {}) const {
    return start(fmt::format("'{}/bin/runexp'", TESSERA_BINARY_DIR), name, arguments, environment);
  }
  // Runs runexp in several processes that mpirun starts with these options.
  Outcome run_in_processes(const std::string& options, const std::string& name,
                           const std::string& arguments,
                           const std::map<std::string, std::string>& environment) const {
    return start(mpirun_command(options, "runexp", ""), name, arguments, environment);
  }
  void train(const std::string& name, const std::string& arguments,
             const std::map<std::string, std::string>& environment = {}) const {
    const Outcome outcome = run(name, arguments, environment);
    INFO(outcome.out << outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    REQUIRE_THAT(outcome.out, Catch::Contains("done: "));
  }

 private:
  Outcome start(const std::string& program, const std::string& name, const std::string& arguments,
                const std::map<std::string, std::string>& environment) const {
    std::string command = fmt::format("env TESSERA_CUDA_DRIVER='{}/lib/virtual_gpu/libcuda.so.1'",
                                      TESSERA_BINARY_DIR);
    for (const auto& [variable, value] : environment)
      command += fmt::format(" {}='{}'", variable, value);
    command += fmt::format(" {} --job_log_dir={} {} {}", program, name, kUsual, arguments);
    return shell(folder_.path(), command, std::chrono::minutes(10));
  }

  static constexpr const char* kUsual =
      "--exp=quickstart.CharLm --threads=1 --set input.path=text.txt --set num_layers=2 --set "
      "model_dims=16 --set num_heads=2 --set hidden_dims=24 --set seq_len=16 --set "
      "global_batch_size=2 --set warmup_steps=2 --set sample_length=0 --set dropout_rate=0.1 --set "
      "num_train_steps=20 --set task.train.eval_interval_steps=0 --set "
      "eval_inputs.validation.seq_len=16 --set eval_inputs.validation.global_batch_size=4";

  TemporaryDirectory folder_;
};

}  // namespace tessera::cuda

// SPDX-License-Identifier: Apache-2.0
// Compares whole runs of runexp with --device=cuda on the virtual GPU with runs on the CPU: losses,
// checkpoints in both directions, evaluation and decoding.
#include <cmath>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/plugins/cuda/tiny_run.h"
#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"

namespace tessera::cuda {
namespace {

namespace filesystem = std::filesystem;

// Largest relative differences of losses. f32: sums have another order. bf16: the bounds between
// meshes (docs/testing.md, "The same numbers on every mesh").
struct Bounds {
  double first = 1e-6, later = 1e-5;
};
constexpr Bounds kF32, kBf16{.first = 0x1p-9, .later = 0x1p-7};

void require_close(const std::vector<double>& got, const std::vector<double>& expected,
                   const Bounds& bounds) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("loss " << i + 1 << ": got " << got[i] << ", expected " << expected[i]);
    REQUIRE(std::abs(got[i] - expected[i]) <=
            (i == 0 ? bounds.first : bounds.later) * std::abs(expected[i]));
  }
}

std::vector<double> losses(const filesystem::path& run) { return numbers_of(run, "loss"); }

// Runs of 20 steps in f32 that save steps 10 and 20. They run at their first use.
class Runs {
 public:
  filesystem::path cpu() { return trained("cpu", ""); }
  filesystem::path gpu() { return trained("gpu", "--device=cuda"); }

  // Copies a run as if it had been killed after saving step 10, and continues it with `arguments`.
  filesystem::path continued(const filesystem::path& run, const std::string& name,
                             const std::string& arguments) {
    const filesystem::path copy = runner_.folder() / name;
    filesystem::copy(run, copy, filesystem::copy_options::recursive);
    REQUIRE(filesystem::remove_all(copy / "checkpoints/step_0000000020") > 0);
    const Outcome outcome = runner_.run(name, kSaving + arguments);
    INFO(outcome.out << outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    REQUIRE_THAT(outcome.out, Catch::Contains("restored step 10"));
    return copy;
  }
  const TinyRun& runner() const { return runner_; }

 private:
  filesystem::path trained(const std::string& name, const std::string& arguments) {
    if (!filesystem::exists(runner_.folder() / name)) runner_.train(name, kSaving + arguments);
    return runner_.folder() / name;
  }

  inline static const std::string kSaving = "--set task.train.save_interval_steps=10 ";
  TinyRun runner_;
};

Runs& runs() {
  static Runs instance;
  return instance;
}

TEST_CASE("training on a GPU has the CPU's losses within rounding, and the same bits twice") {
  const filesystem::path gpu = runs().gpu();
  REQUIRE(losses(gpu).size() == 20);
  require_close(losses(gpu), losses(runs().cpu()), kF32);
  // Another order of warps and streams, and interleaved blocks.
  const TinyRun again;
  again.train("gpu", "--device=cuda",
              {{"TESSERA_VIRTUAL_GPU_SEED", "7"}, {"TESSERA_VIRTUAL_GPU_RESIDENT_BLOCKS", "3"}});
  REQUIRE(losses_of(again.folder() / "gpu") == losses_of(gpu));
  REQUIRE(values_of(again.folder() / "gpu", "grad_norm") == values_of(gpu, "grad_norm"));
}

TEST_CASE("training on a GPU in bf16 has the CPU's losses within its rounding") {
  const TinyRun run;
  const std::string bf16 = "--set compute_dtype=bf16 ";
  run.train("cpu", bf16);
  run.train("gpu", bf16 + "--device=cuda");
  require_close(losses(run.folder() / "gpu"), losses(run.folder() / "cpu"), kBf16);
}

TEST_CASE("training on a GPU with 8-bit products has the CPU's losses within rounding") {
  const TinyRun run;
  const std::string fp8 = "--set task.dtypes.matmul=fp8 ";
  run.train("cpu", fp8);
  run.train("gpu", fp8 + "--device=cuda");
  require_close(losses(run.folder() / "gpu"), losses(run.folder() / "cpu"), kF32);
  REQUIRE(losses(run.folder() / "cpu") != losses(runs().cpu()));
}

TEST_CASE("mixtures of experts train on one GPU and on two as on the CPU") {
  const TinyRun run;
  const std::string ffn = "--set task.model.lm_tpl.stacked_transformer_tpl.block_tpl.ffn_tpl";
  const std::string experts =
      fmt::format("{0}=MoeFeedForward {0}.num_experts=4 --set num_train_steps=3 ", ffn);
  const std::string dropless = experts + ffn + ".router_tpl.bias_rate=0.01 ";
  const std::string slots = experts + ffn + ".router_tpl.capacity_factor=1.0 ";
  run.train("cpu_dropless", dropless);
  run.train("gpu_dropless", dropless + "--device=cuda");
  require_close(losses(run.folder() / "gpu_dropless"), losses(run.folder() / "cpu_dropless"), kF32);
  run.train("cpu_slots", slots);
  run.train(
      "gpus_slots",
      slots + "--set strategy=experts --set ici_mesh_shape=[1,2,1] --device=cuda --devices=2");
  require_close(losses(run.folder() / "gpus_slots"), losses(run.folder() / "cpu_slots"), kF32);
  REQUIRE(losses(run.folder() / "cpu_slots") != losses(run.folder() / "cpu_dropless"));
}

TEST_CASE("a loss in chunks has the CPU's whole loss on a GPU") {
  const TinyRun run;
  const std::string loss = "--set task.model.lm_tpl.softmax_tpl.loss.chunk_tokens=";
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::string steps = "--set num_train_steps=5 --set compute_dtype=" + dtype + " " + loss;
    run.train("cpu_" + dtype, steps + "0");
    run.train("gpu_" + dtype,
              steps + "12 --device=cuda");  // 32 tokens; the last chunk is not full.
    require_close(losses(run.folder() / ("gpu_" + dtype)), losses(run.folder() / ("cpu_" + dtype)),
                  dtype == "f32" ? kF32 : kBf16);
  }
}

TEST_CASE("gradients that products add up over microbatches on a GPU give the CPU's losses") {
  const TinyRun run;
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::string steps =
        "--set num_train_steps=5 --set task.train.num_microbatches=2 "
        "--set compute_dtype=" +
        dtype + " ";
    run.train("cpu_" + dtype, steps);
    run.train("gpu_" + dtype, steps + "--device=cuda");
    require_close(losses(run.folder() / ("gpu_" + dtype)), losses(run.folder() / ("cpu_" + dtype)),
                  dtype == "f32" ? kF32 : kBf16);
  }
}

TEST_CASE("a run that is resumed on a GPU has the same bits as without the interruption") {
  const filesystem::path gpu = runs().gpu();
  const filesystem::path resumed = runs().continued(gpu, "gpu_to_gpu", "--device=cuda");
  REQUIRE(losses_of(resumed) == losses_of(gpu));
}

TEST_CASE("a checkpoint of the CPU continues on a GPU, and back") {
  const filesystem::path there = runs().continued(runs().cpu(), "cpu_to_gpu", "--device=cuda");
  const filesystem::path back = runs().continued(runs().gpu(), "gpu_to_cpu", "");
  require_close(losses(there), losses(runs().cpu()), kF32);
  require_close(losses(back), losses(runs().gpu()), kF32);
  // The input continues at its position: the same tokens give the same weights of the metrics.
  REQUIRE(values_of(there, "tokens") == values_of(runs().cpu(), "tokens"));
}

// Returns the numbers in the dataset's line.
std::vector<double> scores(const std::string& output) {
  static const std::regex kLine(R"(\nvalidation +([^\n]*))"), kNumber(R"([\d.]+)");
  std::smatch line;
  REQUIRE(std::regex_search(output, line, kLine));
  const std::string text = line[1];
  std::vector<double> numbers;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), kNumber);
       at != std::sregex_iterator(); ++at)
    numbers.push_back(std::stod(at->str()));
  return numbers;
}

TEST_CASE("evaluation on a GPU has the CPU's scores") {
  runs().cpu();
  const auto evaluated = [&](const std::string& arguments) {
    const Outcome outcome = runs().runner().run("cpu", "--mode=eval " + arguments);
    INFO(outcome.out << outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    return scores("\n" + outcome.out);
  };
  const std::vector<double> expected = evaluated("");
  REQUIRE(expected.size() >= 5);
  require_close(evaluated("--device=cuda"), expected, {.first = 1e-4, .later = 1e-4});
}

TEST_CASE("greedy decoding on a GPU has the CPU's continuation") {
  runs().cpu();
  const auto decoded = [&](const std::string& arguments) {
    const Outcome outcome =
        runs().runner().run("cpu",
                            "--mode=decode --prompt='the quick' --print_ids "
                            "--set task.decode.strategy=greedy --set task.decode.prefill_chunk=8 "
                            "--set task.decode.batch=2 --set task.decode.max_decode_steps=6 " +
                                arguments);
    INFO(outcome.out << outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    const size_t begin = outcome.out.find("--- prompt"), end = outcome.out.rfind("\n6 tokens in ");
    REQUIRE(begin < end);
    REQUIRE(end != std::string::npos);
    static const std::regex kScore("log-probability -?[0-9.]+");
    return std::regex_replace(outcome.out.substr(begin, end - begin), kScore, "");
  };
  REQUIRE(decoded("--device=cuda") == decoded(""));
}

TEST_CASE("training has the CPU's losses on GPUs of each kind, with their limits", "[full]") {
  const std::string capability = GENERATE("80", "89", "100", "120");
  CAPTURE(capability);
  const TinyRun run;
  for (const char* const dtype : {"f32", "bf16"}) {
    const std::string steps = fmt::format("--set compute_dtype={} --set seq_len=40 ", dtype);
    run.train(fmt::format("cpu_{}", dtype), steps);
    run.train(fmt::format("gpu_{}", dtype), steps + "--device=cuda",
              {{"TESSERA_VIRTUAL_GPU_CAPABILITY", capability}});
    require_close(losses(run.folder() / fmt::format("gpu_{}", dtype)),
                  losses(run.folder() / fmt::format("cpu_{}", dtype)),
                  std::string(dtype) == "f32" ? kF32 : kBf16);
  }
}

TEST_CASE("a larger model trains on a GPU as on the CPU, with dropout, f32 and bf16", "[full]") {
  const TinyRun run;
  for (const char* dtype : {"f32", "bf16"}) {
    const std::string larger = fmt::format(
        "--set compute_dtype={} --set num_layers=3 --set model_dims=48 --set num_heads=3 --set "
        "hidden_dims=80 --set seq_len=40 --set global_batch_size=3 --set num_train_steps=30 ",
        dtype);
    run.train(std::string("cpu_") + dtype, larger);
    run.train(std::string("gpu_") + dtype, larger + "--device=cuda");
    require_close(losses(run.folder() / (std::string("gpu_") + dtype)),
                  losses(run.folder() / (std::string("cpu_") + dtype)),
                  std::string(dtype) == "f32" ? kF32 : kBf16);
  }
}

}  // namespace
}  // namespace tessera::cuda

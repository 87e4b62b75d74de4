// SPDX-License-Identifier: Apache-2.0
// Times decoding token by token with a cache: decode_bench EXPERIMENT BATCH PROMPT NEW THREADS
// FOLDER [path=value]... Prints one JSON line: milliseconds of the prompt and of each further
// token. Unless FOLDER is "-", writes the weights there, one raw file each in the order of
// parameters.txt, and the last logits, so that an equal model in another framework can load the
// weights and compare. Tokens are given, not sampled: token i of row r is (7919·i + 31·r) mod the
// vocabulary.
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/devices/cpu/device.h"
#include "core/runtime/executor/executor.h"
#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tasks/run/session/model_state.h"
#include "tasks/task/base_task.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) fail("cannot write {}", path.string());
}

struct Sizes {
  int64_t batch, prompt, fresh, vocab;
};

class Decoding {
 public:
  Decoding(const BaseTask& task, const Sizes& sizes, int threads)
      : sizes_(sizes), device_(make_cpu_device(threads)), executor_(*device_) {
    DecodeSetting setting{.batch = sizes.batch,
                          .seq = sizes.prompt,
                          .cache_length = sizes.prompt + sizes.fresh,
                          .keep_cast_weights = true};
    prompt_ = executor_.add_program(task.decode_graph(setting, Weights::kTrained), {});
    setting.seq = 1;
    step_ = executor_.add_program(task.decode_graph(setting, Weights::kTrained), {});
    const Graph casts = task.cast_weights_graph(setting, Weights::kTrained);
    const int cast = casts.outputs().empty() ? -1 : executor_.add_program(casts, {});
    executor_.allocate();
    initialise_state(executor_, task.model().parameters(), 1, threads);
    if (cast >= 0) executor_.run(cast);
    logits_.resize(static_cast<size_t>(sizes.batch * sizes.vocab));
  }

  void take(int64_t position, int64_t count) {
    const int program = count == 1 ? step_ : prompt_;
    std::vector<int32_t> ids;
    for (int64_t row = 0; row < sizes_.batch; ++row)
      for (int64_t i = position; i < position + count; ++i)
        ids.push_back(static_cast<int32_t>((7919 * i + 31 * row) % sizes_.vocab));
    const auto rows = static_cast<size_t>(sizes_.batch);
    write(program, names::kIds, ids);
    write(program, names::kStarts, std::vector<int32_t>(rows, static_cast<int32_t>(position)));
    if (count > 1)
      write(program, names::kLast, std::vector<int32_t>(rows, static_cast<int32_t>(count - 1)));
    executor_.run(program);
    executor_.read_output(program, names::kLogits, std::as_writable_bytes(std::span(logits_)));
  }

  Executor& executor() { return executor_; }
  const std::vector<float>& logits() const { return logits_; }
  size_t launches() const { return executor_.plan(step_).launches.size(); }

 private:
  void write(int program, std::string_view name, const std::vector<int32_t>& values) {
    executor_.write_input(program, name, std::as_bytes(std::span(values)));
  }

  Sizes sizes_;
  std::unique_ptr<Device> device_;
  Executor executor_;
  int prompt_ = 0, step_ = 0;
  std::vector<float> logits_;
};

void leave(Decoding& decoding, const ParameterTable& table, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream list(folder / "parameters.txt");
  for (size_t i = 0; i < table.parameters().size(); ++i) {
    const Parameter& each = table.parameters()[i];
    list << each.path << "\n";
    std::vector<std::byte> bytes(static_cast<size_t>(each.type.bytes()));
    decoding.executor().read_state(each.path, bytes);
    write_file(folder / fmt::format("{}.bin", i), bytes);
  }
  write_file(folder / "logits.bin", std::as_bytes(std::span(decoding.logits())));
}

void bench(const std::vector<std::string>& arguments) {
  if (arguments.size() < 6)
    fail("usage: decode_bench EXPERIMENT BATCH PROMPT NEW THREADS FOLDER [path=value]...");
  const ExperimentEntry entry = find_experiment(arguments[0], plugin_path({}));
  const ConfiguredExperiment configured =
      configure(entry, {arguments.begin() + 6, arguments.end()});
  const auto task = configured.config.task.instantiate();
  Sizes sizes{std::stoll(arguments[1]), std::stoll(arguments[2]), std::stoll(arguments[3]), 0};
  for (const Parameter& each : task->model().parameters().parameters())
    if (each.type.has("vocab")) sizes.vocab = each.type.axis("vocab").size;
  Decoding decoding(*task, sizes, std::stoi(arguments[4]));

  decoding.take(0, sizes.prompt);  // Warm-up: touches all memory.
  const auto begin = Clock::now();
  decoding.take(0, sizes.prompt);
  const double prompt = milliseconds_since(begin);
  std::vector<double> tokens;
  for (int64_t i = 0; i < sizes.fresh; ++i) {
    const auto start = Clock::now();
    decoding.take(sizes.prompt + i, 1);
    tokens.push_back(milliseconds_since(start));
  }
  if (arguments[5] != "-") leave(decoding, task->model().parameters(), arguments[5]);
  fmt::print("{{\"prompt_ms\": {:.3f}, \"launches\": {}, \"token_ms\": [{:.3f}]}}\n", prompt,
             decoding.launches(), fmt::join(tokens, ", "));
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    tessera::bench({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode_bench: %s\n", error.what());
    return 2;
  }
}

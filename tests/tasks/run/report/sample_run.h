// SPDX-License-Identifier: Apache-2.0
// The directory of a run that never ran, with every file that the report shows, and texts that try
// to end a script.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <zlib.h>

#include "core/io/json.h"
#include "tasks/run/log/run_log.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {

inline constexpr const char* kHostileText =
    "</script><script>document.title='broken'</script><!-- <b>& \"quoted\" 'text' \\u003c";

inline TrainLine sample_line(int64_t step) {
  const auto at = static_cast<double>(step);
  const double wave = 0.2 * std::sin(at);
  return {.step = step,
          .loss = 5.0 * std::exp(-at / 60.0) + 1.5 + 0.3 * wave,
          .learning_rate = 1e-3 * std::min(1.0, at / 20.0),
          .grad_norm = 1.0 + wave,
          .tokens = 1000 * step,
          .tokens_per_sec = 12000.0 + 800.0 * wave,
          .step_time = 0.08 - 0.01 * wave,
          .mfu = 0.41 + 0.02 * wave,
          .input_wait = 0.001 + 0.001 * wave,
          .metrics = {{"log_pplx", 5.0},
                      {"accuracy", 0.2},
                      {"process_memory", 3e8 + 1e3 * at},
                      {"expert_load_min", 0.6},
                      {"expert_load_mean", 1.0},
                      {"expert_load_max", 1.4 + wave},
                      {"lm.x_layers[3].ffn.expert_load_min", 0.6},
                      {"lm.x_layers[3].ffn.expert_load_mean", 1.0},
                      {"lm.x_layers[3].ffn.expert_load_max", 1.4}}};
}

// Two steps of two launches, as core/runtime/executor/launch_trace.h writes them.
inline std::string sample_trace() {
  const auto slice = [](const char* name, double begin, double duration, const char* line = "") {
    JsonLine json;
    json.add("name", std::string_view(name)).add("ph", std::string_view("X"));
    json.add("ts", begin).add("dur", duration);
    json.add("pid", int64_t{1}).add("tid", int64_t{1});
    if (*line != '\0') json.add_raw("args", JsonLine().add("line", std::string_view(line)).text());
    return json.text();
  };
  std::string events;
  for (const double begin : {0.0, 1000.0}) {
    for (const std::string& event :
         {slice("einsum", begin, 300, "a.cc:1"), slice("x_layers[0]", begin, 300),
          slice("einsum", begin + 300, 200, "a.cc:1"), slice("x_layers[1]", begin + 300, 200),
          slice("forward", begin, 500), slice("wait for send", begin + 600, 250, "b.cc:2"),
          slice("update", begin + 600, 250), slice(begin == 0 ? "step 10" : "step 11", begin, 850)})
      events += (events.empty() ? "" : ",\n") + event;
  }
  return "{\"traceEvents\": [" + events + "]}";
}

inline void write_zipped(const std::filesystem::path& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, text.data(), static_cast<unsigned>(text.size())) > 0);
  gzclose(file);
}

// The program of that trace, and launches that it does not have.
inline std::string sample_program() {
  const auto row = [](const char* phase, const char* path, const char* name, const char* line) {
    return fmt::format(
        R"({{"phase": "{}", "path": "{}", "name": "{}", "source": "{}", "result": "f32[batch=4]",
 "count": 2, "flops": 2000, "bytes": 3000, "sent_bytes": 0}})",
        phase, path, name, line);
  };
  return fmt::format(
      R"({{"launches_per_step": 90, "backward": 40, "update": 80, "rows": [{}, {}, {}, {}],
 "left_out": {{"count": 82, "flops": 1, "bytes": 2, "sent_bytes": 3}},
 "memory": {{"peak_bytes": 3000, "peak_launch": 41, "at": "einsum in lm.x_layers[1]",
 "values": [{{"name": "</script><b>a value with a long name of lm.transformer.x_layers[].self_attention",
 "count": 2, "bytes": 2000}}], "other_values": 3, "other_bytes": 1000,
 "points": [[0, 900, 1000], [41, 2900, 3000], [89, 1200, 1200]]}}}})",
      row("forward", "x_layers[]", "einsum", "a.cc:1"),
      row("forward", "x_layers[].a_layer_with_a_long_name.within_another_one", "exp", "a.cc:3"),
      row("backward", "", "fused add mul reduce_sum rsqrt square …", "layers/norms/norms.cc:120"),
      row("update", "", "wait for send", "b.cc:2"));
}

inline void write_sample_run(const std::filesystem::path& run, int64_t steps = 120) {
  std::filesystem::create_directories(run);
  write_bytes(run / "hparams.toml",
              "# sample.Run\n\n[task.model]\nmodel_dims = 64  # experiments/a.cc:7\n"
              "name = \"</script><b>\"  # --set task.model.name=x\n# seed = 1  # inherited\n\n"
              "[task.train]\nnum_train_steps = 120  # experiments/a.cc:9\nseed = 1234\n");
  write_bytes(run / "plan.json",
              R"({"parameters": 99000, "devices": 1, "peak_bytes": 3000, "arena_bytes": 3100,
 "memory_per_device": {"parameters": 1000, "activations": 2000},
 "saved_for_backward": {"gelu": 1500}, "collectives": []})");
  write_bytes(run / "program.json", sample_program());
  write_bytes(run / "graph.svg",
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9000\" height=\"90\"/>");
  write_bytes(run / "failures.log", std::string("2026-01-01T00:00:00Z ") + kHostileText + "\n");
  RunLog log(run, 0);
  log.event("start", 0, {{"devices", 1}, {"processes", 1}});
  for (int64_t step = 1; step <= steps; ++step) {
    log.train(sample_line(step));
    if (step % 20 == 0)
      log.eval(step, {{"eval/validation/log_pplx", 4.0}, {"eval/validation/loss", 4.5}});
  }
  log.event("restore", steps / 2);
  log.event("failed", steps, kHostileText);
  log.samples(steps,
              {JsonLine()
                   .add("step", steps)
                   .add("prompt", std::string_view("To be"))
                   .add("continuation", std::string_view(kHostileText))
                   .text()},
              {});
}

}  // namespace tessera

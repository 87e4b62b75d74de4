// SPDX-License-Identifier: Apache-2.0
// How fast StreamingTextInput makes batches out of shards (ninja bench_streaming):
//   bench_streaming SHARDS [TOKENIZER] [WORKERS] [SECONDS] [ROWS] [SEQ_LEN]
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "inputs/streaming_text_input.h"

namespace tessera {
namespace {

double sum_of(const HostArray& array) {
  double sum = 0.0;
  for (int64_t i = 0; i < array.shape[0]; ++i) sum += array.data<float>()[i];
  return sum;
}

void measure(const std::vector<std::string>& arguments) {
  const auto argument = [&](size_t i, const char* otherwise) {
    return i < arguments.size() ? arguments[i] : std::string(otherwise);
  };
  StreamingTextInput::HParams p;
  p.path = argument(0, "");
  p.tokenizer = argument(1, "bytes");
  p.num_workers = std::stoll(argument(2, "1"));
  const double seconds = std::stod(argument(3, "5"));
  p.global_batch_size = std::stoll(argument(4, "32"));
  p.seq_len = std::stoll(argument(5, "1024"));
  StreamingTextInput input(p);
  input.attach({});
  input.get_next();  // Files are open and threads run.
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  double taken = 0.0, bytes = 0.0;
  int64_t batches = 0;
  for (; taken < seconds; ++batches) {
    bytes += sum_of(input.get_next()->at("label_bytes"));
    taken = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  const auto tokens = static_cast<double>(batches * p.global_batch_size.get() * p.seq_len.get());
  fmt::print("{:.2f} million tokens a second, {:.1f} MB of text a second ({} workers)\n",
             tokens / taken / 1e6, bytes / taken / 1e6, p.num_workers);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    tessera::measure({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_streaming: {}\n", error.what());
    return 1;
  }
}

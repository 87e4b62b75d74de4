// SPDX-License-Identifier: Apache-2.0
// Measures the rate at which StreamingTextInput makes batches from shards (ninja bench_streaming):
//   bench_streaming SHARDS [TOKENIZER] [WORKERS] [SECONDS] [ROWS] [SEQ_LEN]
// Rates are per processor time of all threads, which depends little on other load.
#include <ctime>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "inputs/streaming/streaming_text_input.h"

namespace tessera {
namespace {

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

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
  input.get_next();  // Warm-up: opens files and starts threads.
  const double begin = processor_seconds();
  double taken = 0.0, bytes = 0.0;
  int64_t batches = 0;
  for (; taken < seconds; ++batches) {
    bytes += sum_of(input.get_next()->at("label_bytes"));
    taken = processor_seconds() - begin;
  }
  const auto tokens = static_cast<double>(batches * p.global_batch_size.get() * p.seq_len.get());
  fmt::print("{:.2f} million tokens, {:.1f} MB of text a second and core\n", tokens / taken / 1e6,
             bytes / taken / 1e6);
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

// SPDX-License-Identifier: Apache-2.0
// Measures the rate of batches from a flat-tokens file: bench_flat_tokens [--tokens=N] [--seq=N]
// [--batch=N] [--tokenizer=NAME] [--json]. One thread, packed and shuffled, every array of a batch
// filled, the file in the page cache. Reports the median of several passes in processor time of the
// thread, which depends little on other load. Also measures the memory bandwidth.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {
namespace {

struct Options {
  int64_t tokens = 50'000'000;
  int64_t seq = 1024;
  int64_t batch = 32;
  std::string tokenizer = "bytes";
  bool json = false;
};

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Documents of a few hundred tokens with a skewed distribution of ids, as in text.
void write_tokens(const std::filesystem::path& path, const Options& options) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(options.tokenizer);
  const auto vocab = static_cast<double>(tokenizer->vocab_size());
  FlatTokensWriter writer(path, *tokenizer);
  writer.begin_split("train");
  std::mt19937_64 random(1);
  std::vector<int32_t> document;
  for (int64_t left = options.tokens; left > 0; left -= static_cast<int64_t>(document.size())) {
    document.resize(std::min<size_t>(static_cast<size_t>(left), 100 + random() % 1400));
    for (int32_t& id : document) {
      const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
      id = static_cast<int32_t>(uniform * uniform * uniform * vocab);
    }
    writer.add_document(document);
  }
  writer.finish();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Copy rate in bytes per second; each byte is read and written once.
double copy_rate() {
  std::vector<std::byte> from(size_t{256} << 20, std::byte{1}), to(from.size());
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    const double begin = processor_seconds();
    std::memcpy(to.data(), from.data(), from.size());
    seconds.push_back(processor_seconds() - begin);
    if (to[static_cast<size_t>(i)] != std::byte{1}) std::abort();
  }
  return static_cast<double>(from.size()) / median(seconds);
}

// Tokens per second of each pass over the file. The first pass also locates the chunks and verifies
// their checksums.
std::vector<double> pass_rates(const std::filesystem::path& path, const Options& options) {
  FlatTokensInput::HParams p;
  p.path = path.string();
  p.global_batch_size = options.batch;
  p.seq_len = options.seq;
  FlatTokensInput input(p);
  input.attach({});
  const int64_t batches = options.tokens / (options.batch * options.seq);
  std::vector<double> rates;
  for (int pass = 0; pass < 6; ++pass) {
    const double begin = processor_seconds();
    for (int64_t i = 0; i < batches; ++i) input.recycle(*input.get_next());
    rates.push_back(static_cast<double>(batches * options.batch * options.seq) /
                    (processor_seconds() - begin));
  }
  return rates;
}

int64_t number(const std::string& text) { return std::stoll(text); }

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string value = argument.substr(std::min(argument.find('=') + 1, argument.size()));
    if (argument.starts_with("--tokens="))
      options.tokens = number(value);
    else if (argument.starts_with("--seq="))
      options.seq = number(value);
    else if (argument.starts_with("--batch="))
      options.batch = number(value);
    else if (argument.starts_with("--tokenizer="))
      options.tokenizer = value;
    else if (argument == "--json")
      options.json = true;
    else
      fail("no option {}", argument);
  }
  return options;
}

void run(const Options& options) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("bench_flat_tokens_{}.h5", ::getpid());
  write_tokens(path, options);
  const std::vector<double> rates = pass_rates(path, options);
  const double later = median({rates.begin() + 1, rates.end()});
  const double copied = copy_rate();
  std::filesystem::remove(path);
  if (options.json) {
    fmt::print(R"({{"first_pass": {:.0f}, "later_passes": {:.0f}, "memcpy": {:.0f}}})"
               "\n",
               rates[0], later, copied);
    return;
  }
  fmt::print("{} tokens, rows of {}, batches of {}: million tokens a second and core\n",
             options.tokens, options.seq, options.batch);
  fmt::print("  first pass    {:8.0f}\n  later passes  {:8.0f}\n", rates[0] * 1e-6, later * 1e-6);
  // Per token, 4 bytes are read and 24 written.
  fmt::print("  {:.2f} GB/s of arrays, where memcpy moves {:.2f} GB/s\n", later * 28e-9,
             2 * copied * 1e-9);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    tessera::run(tessera::parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_flat_tokens: {}\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0
// Measures the speed of tokenizers, and writes their ids for the texts of a file, which
// tests/golden/compare_tokenizers.py compares with those of other libraries (ninja
// bench_tokenizers).
//   bench_tokenizers speed TOKENIZER FILE [THREADS [PASSES]]
//   bench_tokenizers encode TOKENIZER RECORDS IDS [special]
// Documents are separated by empty lines. The first pass fills the caches of words; the others are
// reported by the fastest. RECORDS has texts, each preceded by its length (u32). IDS has the ids of
// each text, preceded by their number (u32).
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {
namespace {

// Documents of about a kilobyte, as in a corpus.
std::vector<std::string_view> documents_of(std::string_view text) {
  constexpr size_t kShortest = 1000;
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const size_t gap = text.find("\n\n", std::min(kShortest, text.size()));
    const size_t end = gap == std::string_view::npos ? text.size() : gap + 2;
    documents.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return documents;
}

int64_t encode_all(const Tokenizer& tokenizer, const std::vector<std::string_view>& documents,
                   int threads) {
  std::atomic<size_t> next = 0;
  std::atomic<int64_t> tokens = 0;
  const auto work = [&] {
    std::vector<int32_t> ids;
    for (size_t i = next++; i < documents.size(); i = next++) {
      ids.clear();
      tokenizer.encode(documents[i], &ids);
      tokens += static_cast<int64_t>(ids.size());
    }
  };
  std::vector<std::jthread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  workers.clear();
  return tokens;
}

void measure_speed(const std::string& name, const std::string& path, int threads, int passes) {
  const auto tokenizer = make_tokenizer(name);
  const std::string text = read_file(path);
  const std::vector<std::string_view> documents = documents_of(text);
  tokenizer->encode("Hello there");  // Tables are made on first use.
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  double best = 0;
  double best_a_core = 0;  // In processor time, which depends less on other load.
  double first_a_core = 0;
  int64_t tokens = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t processor_begin = std::clock();
    tokens = encode_all(*tokenizer, documents, threads);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const auto processor = static_cast<double>(std::clock() - processor_begin) / CLOCKS_PER_SEC;
    best = std::max(best, megabytes / seconds.count());
    best_a_core = std::max(best_a_core, megabytes / processor);
    if (pass == 0) first_a_core = best_a_core;
  }
  fmt::print(
      "{{\"megabytes_per_second\": {:.1f}, \"a_core\": {:.1f}, \"first_a_core\": {:.1f}, "
      "\"threads\": {}, \"documents\": {}, \"tokens\": {}}}\n",
      best, best_a_core, first_a_core, threads, documents.size(), tokens);
}

void encode_records(const std::string& name, const std::string& from, const std::string& to,
                    bool with_special) {
  const auto tokenizer = make_tokenizer(name);
  const std::string records = read_file(from);
  std::ofstream out(to, std::ios::binary);
  for (size_t at = 0; at + 4 <= records.size();) {
    uint32_t size = 0;
    std::memcpy(&size, records.data() + at, sizeof(size));
    const std::string_view text = std::string_view(records).substr(at + 4, size);
    const std::vector<int32_t> ids =
        with_special ? tokenizer->encode_with_special(text) : tokenizer->encode(text);
    const auto count = static_cast<uint32_t>(ids.size());
    out.write(reinterpret_cast<const char*>(&count), sizeof(count));
    out.write(reinterpret_cast<const char*>(ids.data()), static_cast<int64_t>(count) * 4);
    at += 4 + size;
  }
}

int run(const std::vector<std::string>& words) {
  if (words.size() >= 3 && words[0] == "speed") {
    measure_speed(words[1], words[2], words.size() > 3 ? std::stoi(words[3]) : 1,
                  words.size() > 4 ? std::stoi(words[4]) : 6);
  } else if (words.size() >= 4 && words[0] == "encode") {
    encode_records(words[1], words[2], words[3], words.size() > 4 && words[4] == "special");
  } else {
    fmt::print(stderr,
               "usage: bench_tokenizers speed TOKENIZER FILE [THREADS [PASSES]]\n"
               "       bench_tokenizers encode TOKENIZER RECORDS IDS [special]\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int count, char** words) {
  try {
    return tessera::run({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_tokenizers: {}\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/gemm/algorithm_cache.h"

#include <string>
#include <thread>
#include <vector>

#include "tests/plugins/cuda/product_trial.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera::cuda {
namespace {

constexpr AlgorithmWords kAlgorithm = {1, 2, 3, 0xfedcba9876543210, 5, 6, 7, 8};

bool accepts_all(const AlgorithmWords&) { return true; }

// The algorithm of "key" that a process finds in the file, and whether it had to choose one.
struct Found {
  std::optional<AlgorithmWords> algorithm;
  bool chosen = false;
  std::string note;
};
Found find_in(const std::filesystem::path& file, const AlgorithmWords& choice = kAlgorithm,
              const AlgorithmCache::Accepts& accepts = accepts_all,
              const std::string& key = "a GPU, m=1 n=2") {
  Found found;
  AlgorithmCache cache(file, [&](const std::string& text) { found.note = text; });
  found.algorithm = cache.find(key, accepts, [&] {
    found.chosen = true;
    return choice;
  });
  return found;
}

TEST_CASE("an algorithm is chosen once, and found in the file later") {
  const TemporaryDirectory directory;
  const auto file = directory / "cache/tessera/algorithms";
  REQUIRE(find_in(file).chosen);
  const Found later = find_in(file, {});
  REQUIRE_FALSE(later.chosen);
  REQUIRE(later.note.empty());
  REQUIRE(later.algorithm == kAlgorithm);
  REQUIRE(find_in(file, {}, accepts_all, "another GPU").chosen);
  REQUIRE_FALSE(find_in(file).chosen);  // Both are in the file.
}

TEST_CASE("an algorithm that the library does not accept is chosen again") {
  const TemporaryDirectory directory;
  const auto file = directory / "algorithms";
  find_in(file);
  const AlgorithmWords other = {9};
  const Found found =
      find_in(file, other, [](const AlgorithmWords& words) { return words[0] == 9; });
  REQUIRE(found.chosen);
  REQUIRE(find_in(file).algorithm == other);
}

TEST_CASE("a damaged cache of algorithms is ignored and written again") {
  const TemporaryDirectory directory;
  const auto file = directory / "algorithms";
  find_in(file);
  const std::string good = read_bytes(file);
  std::vector<std::string> damaged = {"", "text", good.substr(0, good.size() / 2), good + good,
                                      "tessera cublaslt algorithms 2" + good.substr(29)};
  for (size_t i = 0; i < good.size(); ++i) {
    damaged.push_back(good);
    damaged.back()[i] ^= 1;
  }
  for (const std::string& bytes : damaged) {
    write_bytes(file, bytes);
    INFO(bytes);
    const Found found = find_in(file);
    REQUIRE(found.chosen);
    REQUIRE(found.algorithm == kAlgorithm);
    REQUIRE_THAT(found.note, Catch::Contains(file.string() + " is damaged: "));
    REQUIRE(read_bytes(file) == good);
  }
}

TEST_CASE("algorithms are chosen where no file can be written") {
  const TemporaryDirectory directory;
  write_bytes(directory / "file", "");
  const Found found = find_in(directory / "file/algorithms");
  REQUIRE(found.algorithm == kAlgorithm);
  REQUIRE_THAT(found.note, Catch::Contains("is not used, so they are timed again"));
  std::filesystem::create_directories(directory / "algorithms");
  REQUIRE(find_in(directory / "algorithms").algorithm == kAlgorithm);
  REQUIRE(find_in({}).algorithm == kAlgorithm);
}

TEST_CASE("of several that need an algorithm, one chooses and the others wait for it") {
  const TemporaryDirectory directory;
  const auto file = directory / "algorithms";
  std::vector<Found> found(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < found.size(); ++i)
    threads.emplace_back([&, i] { found[i] = find_in(file, {i + 1}); });
  for (std::thread& thread : threads) thread.join();
  int chosen = 0;
  for (const Found& each : found) {
    chosen += each.chosen;
    REQUIRE(each.algorithm == found[0].algorithm);
  }
  REQUIRE(chosen == 1);
}

TEST_CASE("the cache of algorithms lies in the user's cache directory") {
  const ScopedVariable home("HOME", "/home/someone");
  {
    const ScopedVariable cache("XDG_CACHE_HOME", "/caches");
    REQUIRE(algorithm_cache_file() == "/caches/tessera/cublaslt_algorithms");
  }
  const ScopedVariable cache("XDG_CACHE_HOME", "");
  REQUIRE(algorithm_cache_file() == "/home/someone/.cache/tessera/cublaslt_algorithms");
  const ScopedVariable nowhere("HOME", "");
  REQUIRE(algorithm_cache_file().empty());
}

}  // namespace
}  // namespace tessera::cuda

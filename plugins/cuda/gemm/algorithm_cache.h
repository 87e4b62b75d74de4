// SPDX-License-Identifier: Apache-2.0
// Which algorithm of cuBLASLt was fastest for a product, kept in a file:
//   tessera cublaslt algorithms 1
//   <16 hexadecimal digits> × 8, separated by spaces, a space, the key
//   …
//   crc32c <8 digits: of all bytes before this line>
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace tessera::cuda {

// The bytes of a cublasLtMatmulAlgo_t, which the library's version determines the meaning of.
using AlgorithmWords = std::array<uint64_t, 8>;

// One file, shared by all processes that time the same products: the first takes the file's lock
// and times, the others wait and read what it has written. All then use the same algorithm, and so
// compute the same bits. Any thread.
class AlgorithmCache {
 public:
  using Accepts = std::function<bool(const AlgorithmWords&)>;
  using Choose = std::function<std::optional<AlgorithmWords>()>;

  using Note = std::function<void(const std::string& text)>;

  // An empty path: nothing is kept on disk. `note` is called at most once.
  explicit AlgorithmCache(std::filesystem::path file, Note note = note_on_standard_error);

  // The algorithm of `key` (one line of text). If no algorithm is stored, or `accepts` refuses it,
  // `choose` is called and its result is stored. A file that cannot be locked, read or written, or
  // is damaged, is not used, with a note.
  std::optional<AlgorithmWords> find(const std::string& key, const Accepts& accepts,
                                     const Choose& choose);

 private:
  void read();
  void write();
  void note(const std::string& why);
  static void note_on_standard_error(const std::string& text);

  std::filesystem::path file_;
  Note note_;
  std::mutex mutex_;
  std::map<std::string, AlgorithmWords> entries_;
  bool noted_ = false;
};

// $XDG_CACHE_HOME or ~/.cache, and in it tessera/cublaslt_algorithms; empty if neither is set.
std::filesystem::path algorithm_cache_file();

// The cache of that file; one per process and file.
AlgorithmCache& algorithm_cache();

}  // namespace tessera::cuda

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fuzz.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr size_t kLongest = 1 << 16;

// Boundary values of the integer types that parsers use for lengths.
constexpr uint64_t kEdges[] = {0,          1,          0x7f,       0x80,       0xff,
                               0x7fff,     0x8000,     0xffff,     0x7fffffff, 0x80000000,
                               0xffffffff, 1ull << 62, ~0ull >> 1, ~0ull};
constexpr std::string_view kWords[] = {"\"",
                                       "{",
                                       "}",
                                       "[",
                                       "]",
                                       ",",
                                       ":",
                                       "\\u",
                                       "-1",
                                       "1e9",
                                       "null",
                                       "true",
                                       "\n",
                                       "\xff",
                                       "\xed\xa0\x80",
                                       "99999999999999999999",
                                       "[[[[[[[[",
                                       "\0"};

class Mutator {
 public:
  Mutator(const std::vector<std::string>& seeds, uint64_t number)
      : seeds_(seeds), random_(number * 0x9e3779b97f4a7c15u + 1) {}

  std::string make() {
    std::string bytes = seeds_[below(seeds_.size())];
    const size_t changes = 1 + below(below(4) == 0 ? 24 : 4);
    for (size_t i = 0; i < changes; ++i) change(&bytes);
    if (bytes.size() > kLongest) bytes.resize(kLongest);
    return bytes;
  }

 private:
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void change(std::string* bytes) {
    const size_t at = below(bytes->size() + 1);
    const size_t length = below(std::min<size_t>(bytes->size() - at, 64) + 1);
    switch (below(9)) {
      case 0:  // A flipped bit.
        if (at < bytes->size()) (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << below(8)));
        break;
      case 1:  // A changed byte.
        if (at < bytes->size()) (*bytes)[at] = static_cast<char>(random_());
        break;
      case 2:  // A boundary value, little-endian, 1 to 8 bytes.
        write_number(bytes, at, kEdges[below(std::size(kEdges))], size_t{1} << below(4));
        break;
      case 3:
        bytes->erase(at, length);
        break;
      case 4:  // A repeated piece.
        bytes->insert(at, bytes->substr(at, length));
        break;
      case 5:
        bytes->resize(at);
        break;
      case 6:
        bytes->insert(at, kWords[below(std::size(kWords))]);
        break;
      case 7: {  // A piece of another seed.
        const std::string& other = seeds_[below(seeds_.size())];
        bytes->insert(at, other.substr(below(other.size() + 1), below(64)));
        break;
      }
      default:  // Changes a nearby digit, if any.
        for (size_t i = at; i < std::min(bytes->size(), at + 64); ++i)
          if ((*bytes)[i] >= '0' && (*bytes)[i] <= '9') {
            (*bytes)[i] = static_cast<char>('0' + below(10));
            break;
          }
    }
  }

  static void write_number(std::string* bytes, size_t at, uint64_t number, size_t width) {
    for (size_t i = 0; i < width && at + i < bytes->size(); ++i)
      (*bytes)[at + i] = static_cast<char>(number >> (8 * i));
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_;
};

void keep(const std::filesystem::path& path, const std::string& input) {
  std::ofstream(path, std::ios::binary) << input;
}

}  // namespace

FuzzReport fuzz(const std::string& name, const std::vector<std::string>& seeds,
                const std::function<void(std::string_view)>& target, int64_t count, int64_t first) {
  CHECK(!seeds.empty());
  FuzzReport report;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("tessera_fuzz_{}.input", name);
  for (int64_t number = first; number < first + count; ++number) {
    const std::string input = Mutator(seeds, static_cast<uint64_t>(number)).make();
    try {
      target(input);
    } catch (const Error&) {
      ++report.refused;
    } catch (const std::exception& error) {
      keep(path, input);
      throw std::logic_error(fmt::format("input {} of {} (kept in {}) throws, but not Error: {}",
                                         number, name, path.string(), error.what()));
    }
    ++report.inputs;
  }
  return report;
}

}  // namespace tessera

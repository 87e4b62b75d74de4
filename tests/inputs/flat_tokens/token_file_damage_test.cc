// SPDX-License-Identifier: Apache-2.0
// Damaged token files: after any bit flip, the file is refused with a message or reads as before,
// and no process ends by a signal.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <random>

#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Made {
  int documents = 0;
  int document_tokens = 0;
  int compression = 0;
  int splits = 1;
};

void make(const fs::path& path, const Made& made) {
  FlatTokensWriter writer(path, *make_tokenizer("bytes"), {.compression = made.compression});
  std::mt19937 random(3);
  for (int split = 0; split < made.splits; ++split) {
    writer.begin_split(split == 0 ? "train" : fmt::format("split_{}", split));
    std::vector<int32_t> ids(static_cast<size_t>(made.document_tokens));
    for (int i = 0; i < made.documents; ++i) {
      for (int32_t& id : ids) id = static_cast<int32_t>(1 + random() % 250);
      writer.add_document(ids);
    }
  }
  writer.finish();
}

// Everything that a reader returns, as one string.
std::string contents(const fs::path& path) {
  std::string all;
  for (const std::string& split : FlatTokensReader::splits(path)) {
    const FlatTokensReader reader(path, split);
    std::vector<uint32_t> tokens(static_cast<size_t>(reader.num_tokens()));
    reader.read(0, tokens);
    std::vector<uint64_t> starts(static_cast<size_t>(reader.num_documents()) + 1);
    reader.read_starts(0, starts);
    all +=
        fmt::format("{} {} {} {} {} {}", split, reader.max_token_id(), reader.vocab_size(),
                    reader.tokenizer_fingerprint(), reader.source(), reader.tokenizer_definition());
    all.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(tokens[0]));
    all.append(reinterpret_cast<const char*>(starts.data()), starts.size() * sizeof(starts[0]));
  }
  return all;
}

// Results passed between processes.
struct Tally {
  size_t done = 0;
  int64_t refused = 0;
  int64_t unchanged = 0;
  int64_t changed = 0;
};

void flip(const fs::path& path, const std::string& bytes, const std::string& expected,
          const std::vector<size_t>& places, Tally* tally) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  while (tally->done < places.size()) {
    const size_t bit = places[tally->done++];
    const auto at = static_cast<off_t>(bit / 8);
    const char damaged = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    if (::pwrite(file, &damaged, 1, at) != 1) ::_exit(2);
    ::alarm(20);  // A process that takes this long hangs.
    try {
      ++(contents(path) == expected ? tally->unchanged : tally->changed);
    } catch (const Error&) {
      ++tally->refused;
    }
    if (::pwrite(file, &bytes[bit / 8], 1, at) != 1) ::_exit(2);
  }
  ::_exit(0);
}

// Flips these bits one at a time, each in a child process.
Tally flip_bits(const fs::path& path, const std::vector<size_t>& places) {
  const std::string bytes = read_bytes(path);
  const std::string expected = contents(path);
  void* const shared =
      ::mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto* const tally = new (shared) Tally;
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) flip(path, bytes, expected, places, tally);
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  const Tally result = *tally;
  ::munmap(shared, sizeof(Tally));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    FAIL("bit " << places[result.done - 1] << " ends the process: status " << status);
  REQUIRE(result.changed == 0);
  return result;
}

// Bytes near non-zero bytes: the used part of a small file.
std::vector<size_t> bytes_in_use(const std::string& bytes) {
  constexpr size_t kNear = 16;
  std::vector<size_t> used;
  size_t last = bytes.size();  // The last non-zero byte.
  size_t next = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    next = std::max(next, at);
    while (next < bytes.size() && next <= at + kNear && bytes[next] == 0) ++next;
    if (bytes[at] != 0) last = at;
    const bool is_near =
        (last < bytes.size() && at - last <= kNear) || (next < bytes.size() && next - at <= kNear);
    if (is_near) used.push_back(at);
  }
  return used;
}

const std::vector<Made> kFiles = {{.documents = 3, .document_tokens = 40},
                                  {.documents = 300, .document_tokens = 3, .compression = 6},
                                  {.documents = 1, .document_tokens = 5, .splits = 9}};

TEST_CASE("a flipped bit in a token file is refused or harmless, and ends no process") {
  const TemporaryDirectory directory;
  std::mt19937_64 random(1);
  for (const Made& made : kFiles) {
    make(directory / "t.h5", made);
    const std::vector<size_t> used = bytes_in_use(read_bytes(directory / "t.h5"));
    std::vector<size_t> places;
    for (int i = 0; i < 300; ++i) places.push_back(8 * used[random() % used.size()] + random() % 8);
    REQUIRE(flip_bits(directory / "t.h5", places).refused > 150);
  }
}

TEST_CASE("a bit flipped in every byte of small token files ends no process", "[full]") {
  const TemporaryDirectory directory;
  std::mt19937_64 random(2);
  for (const Made& made : kFiles) {
    make(directory / "t.h5", made);
    std::vector<size_t> places;
    for (const size_t at : bytes_in_use(read_bytes(directory / "t.h5")))
      places.push_back(8 * at + random() % 8);
    // Every third byte of the file with many splits, because each flip reads all of them.
    if (made.splits > 1) {
      std::shuffle(places.begin(), places.end(), random);
      places.resize(places.size() / 3);
    }
    const Tally tally = flip_bits(directory / "t.h5", places);
    WARN(places.size() << " flips: " << tally.refused << " refused, " << tally.unchanged
                       << " without effect");
  }
}

}  // namespace
}  // namespace tessera

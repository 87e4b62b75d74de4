// SPDX-License-Identifier: Apache-2.0
// Direct reads return what HDF5 returns, for every layout of the file, and never bytes that changed
// later.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/io/hdf5.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Values = std::vector<uint32_t>;

struct Layout {
  int64_t elements = 200000;
  int64_t chunk = 8192;
  int compression = 0;
  int64_t appended_at_once = 8192;
  bool repeats = false;  // Many pieces hold the same bytes.
};

Values values_of(const Layout& layout) {
  std::mt19937 random(7);
  Values values(static_cast<size_t>(layout.elements));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = layout.repeats ? static_cast<uint32_t>(i / 30000) : random();
  return values;
}

// Two datasets grow alternately, so that the chunks of one are not adjacent.
Values write_file(const std::filesystem::path& path, const Layout& layout) {
  const Values values = values_of(layout);
  Hdf5File file = Hdf5File::create(path);
  const Hdf5Layout chunks{
      .chunk = {layout.chunk}, .compression = layout.compression, .growable = true};
  Hdf5Dataset tokens = file.create_dataset("tokens", StoredType::kU32, {0}, chunks);
  Hdf5Dataset other = file.create_dataset("other", StoredType::kU32, {0}, chunks);
  std::mt19937 random(8);
  const auto step = static_cast<size_t>(layout.appended_at_once);
  for (size_t at = 0; at < values.size(); at += step) {
    const std::span<const uint32_t> part =
        std::span(values).subspan(at, std::min(step, values.size() - at));
    tokens.append(std::as_bytes(part));
    if (random() % 5 == 0) other.append(std::as_bytes(part));
  }
  file.close();
  return values;
}

Values read(const Hdf5DirectReader& reader, int64_t begin, int64_t size) {
  Values values(static_cast<size_t>(size));
  reader.read(begin, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST_CASE("any range of any layout is read as HDF5 reads it") {
  const TemporaryDirectory directory;
  const Layout layout =
      GENERATE(Layout{}, Layout{.repeats = true}, Layout{.compression = 4}, Layout{.chunk = 100},
               Layout{.elements = 5000}, Layout{.chunk = 65536, .appended_at_once = 1000});
  const Values values = write_file(directory / "t.h5", layout);
  const Hdf5File file = Hdf5File::open(directory / "t.h5");
  const Hdf5Dataset dataset = file.dataset("tokens");
  const Hdf5DirectReader reader(dataset, "t.h5");
  std::mt19937 random(9);
  for (int trial = 0; trial < 3000; ++trial) {
    const auto begin = static_cast<int64_t>(random() % values.size());
    const auto size = static_cast<int64_t>(
        1 + random() % std::min<size_t>(values.size() - static_cast<size_t>(begin), 20000));
    const Values got = read(reader, begin, size);
    REQUIRE(std::equal(got.begin(), got.end(), values.begin() + begin));
  }
  // Exactly the layouts that allow it were read directly.
  const bool direct = layout.compression == 0 && layout.chunk >= 1024;
  REQUIRE(reader.num_pieces() ==
          (direct ? (layout.elements + layout.chunk - 1) / layout.chunk : 0));
  REQUIRE(reader.pieces_found() == reader.num_pieces());
}

TEST_CASE(
    "contiguous data is read directly, and a file behind a block of the user's is read right") {
  const std::string python = python_with("h5py");
  if (python.empty()) {
    WARN("skipped: no Python with h5py (Debian: python3-h5py)");
    return;
  }
  const TemporaryDirectory directory;
  write_bytes(directory / "write.py",
              "import h5py, numpy\n"
              "values = numpy.arange(150000, dtype='u4') * 7\n"
              "with h5py.File('t.h5', 'w') as f:\n"
              "  f.create_dataset('plain', data=values, dtype='<u4')\n"
              "with h5py.File('user_block.h5', 'w', userblock_size=512) as f:\n"
              "  f.create_dataset('plain', data=values, dtype='<u4', chunks=(5000,))\n");
  REQUIRE(std::system(
              fmt::format("cd {} && {} write.py", directory.path().string(), python).c_str()) == 0);
  Values values(150000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint32_t>(i) * 7;
  const auto pieces_found = [&](const char* name, const char* dataset_name) {
    const Hdf5File file = Hdf5File::open(directory / name);
    const Hdf5Dataset dataset = file.dataset(dataset_name);
    const Hdf5DirectReader reader(dataset, name);
    for (int pass = 0; pass < 2; ++pass) REQUIRE(read(reader, 0, 150000) == values);
    return reader.pieces_found();
  };
  REQUIRE(pieces_found("t.h5", "plain") == 3);
  pieces_found("user_block.h5", "plain");
}

TEST_CASE("data in a compression that only h5py has is refused with what to do") {
  const std::string python = python_with("h5py");
  if (python.empty()) return skip_test("no Python with h5py (Debian: python3-h5py)");
  const TemporaryDirectory directory;
  write_bytes(directory / "write.py",
              "import h5py, numpy\n"
              "with h5py.File('t.h5', 'w') as f:\n"
              "  f.create_dataset('a', data=numpy.zeros(64, 'u4'), compression='lzf')\n");
  REQUIRE(std::system(
              fmt::format("cd {} && {} write.py", directory.path().string(), python).c_str()) == 0);
  const Hdf5File file = Hdf5File::open(directory / "t.h5");
  Values values(64);
  REQUIRE_THAT(
      error_of([&] {
        file.dataset("a").read(Region{{0}, {64}}, std::as_writable_bytes(std::span(values)));
      }),
      Catch::Contains("compressed by a filter that this HDF5 does not have") &&
          Catch::Contains("compression='gzip'"));
}

TEST_CASE("threads that read the same pieces first all get the right bytes") {
  const TemporaryDirectory directory;
  const Values values = write_file(directory / "t.h5", {.chunk = 2048});
  const Hdf5File file = Hdf5File::open(directory / "t.h5");
  const Hdf5Dataset dataset = file.dataset("tokens");
  const Hdf5DirectReader reader(dataset, "t.h5");
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < wrong.size(); ++thread)
    threads.emplace_back([&, thread] {
      for (int64_t begin = 0; begin + 3000 <= 200000; begin += 1500) {
        const Values got = read(reader, begin, 3000);
        wrong[thread] += !std::equal(got.begin(), got.end(), values.begin() + begin);
      }
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == std::vector<int>(4));
}

TEST_CASE("a file that is truncated or written to while it is read is an error, never a crash") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "t.h5";
  write_file(path, {});
  const bool cut = GENERATE(true, false);
  const Hdf5File file = Hdf5File::open(path);
  const Hdf5Dataset dataset = file.dataset("tokens");
  const Hdf5DirectReader reader(dataset, "t.h5:train");
  for (int64_t begin = 0; begin < 200000; begin += 8192) read(reader, begin, 100);
  if (cut) {
    std::filesystem::resize_file(path, 20000);
    REQUIRE_THROWS_WITH(read(reader, 150000, 100),
                        Contains("t.h5:train: ") && Contains("truncated"));
    REQUIRE_THROWS_WITH(read(reader, 0, 100), Contains("changed while it was in use"));
  } else {
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(50000) << "garbage";
    REQUIRE_THROWS_WITH(read(reader, 0, 100), Contains("changed while it was in use"));
  }
}

TEST_CASE("a file that is replaced is still read as it was") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "t.h5";
  const Values values = write_file(path, {});
  const Hdf5File file = Hdf5File::open(path);
  const Hdf5Dataset dataset = file.dataset("tokens");
  const Hdf5DirectReader reader(dataset, "t.h5");
  read(reader, 0, 100);
  std::ofstream(directory / "new") << "something else";
  std::filesystem::rename(directory / "new", path);
  for (int pass = 0; pass < 2; ++pass) REQUIRE(read(reader, 0, 200000) == values);
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// Tests which files a path, a folder or a pattern gives, under which names, and which are left out.
#include "inputs/readers/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "inputs/readers/foreign_format.h"
#include "tests/support/catch.h"
#include "tests/support/compress.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

std::string bytes(const char* literal, size_t size) { return {literal, size}; }

Names names_of(const TextFiles& found) {
  Names names;
  for (const TextFile& file : found.files) names.push_back(file.name);
  return names;
}

TEST_CASE("a folder gives its text files, and says what it leaves out and why") {
  const TemporaryDirectory directory;
  for (const char* name : {"a.txt", "sub/b.md", ".git/c.txt", "build/d.txt", "runs/e",
                           "sub/.hidden", "run/hparams.toml", "cmake/CMakeCache.txt", "F.TXT"})
    write_bytes(directory / name, "text of some length");
  write_bytes(directory / "C.JSONL.GZ", gzip("{}"));
  write_bytes(directory / "d.py.zst", zstd("print()"));
  write_bytes(directory / "binary", bytes("a\0b", 3));
  write_bytes(directory / "ids.bin", "text");
  write_bytes(directory / "tokens.h5",
              "\x89HDF\r\n\x1a\n and so on, with more bytes than all texts");
  ::mkfifo((directory / "fifo").c_str(), 0600);
  fs::create_symlink("nowhere", directory / "broken");
  const TextFiles found = find_text_files({directory.path().string()});
  REQUIRE(names_of(found) ==
          Names{"C.JSONL.GZ", "F.TXT", "a.txt", "build/d.txt", "d.py.zst", "runs/e", "sub/b.md"});
  for (const char* group : {"hidden: 2 (", "the directory of a run: 1 (", "a build folder: 1 (",
                            "binary: 1 (", "a token file (.bin): 1 (", "HDF5: 1 (",
                            "not a regular file: 1 (", "a link to nothing: 1 ("})
    REQUIRE_THAT(found.left_out, Contains(group));
  REQUIRE_THAT(found.left_out, Catch::StartsWith("left out: ") && Contains(".git, …)"));
  REQUIRE(find_text_files({(directory / "sub/b.md").string()}).left_out.empty());
}

TEST_CASE("links are followed once, and the names of a hub's cache are those of its links") {
  const TemporaryDirectory directory;
  write_bytes(directory / "hub/blobs/0a1b", "{\"text\": \"one\"}");
  write_bytes(directory / "hub/blobs/2c3d", gzip("{\"text\": \"two\"}"));
  const fs::path revision = directory / "hub/snapshots/main";
  fs::create_directories(revision / "loop");
  fs::create_symlink("../../blobs/0a1b", revision / "a.jsonl");
  fs::create_symlink("../../blobs/2c3d", revision / "b.jsonl.gz");
  fs::create_directory_symlink("../..", revision / "loop/hub");
  REQUIRE(names_of(find_text_files({(directory / "hub").string()})) ==
          Names{"snapshots/main/a.jsonl", "snapshots/main/b.jsonl.gz"});
  REQUIRE(find_text_files({revision.string()}).files.size() == 2);
}

TEST_CASE("a file is read once, by whatever paths and links it is named") {
  const TemporaryDirectory directory;
  write_bytes(directory / "in/a.txt", "one");
  fs::create_symlink("in/a.txt", directory / "link.txt");
  fs::create_hard_link(directory / "in/a.txt", directory / "hard.txt");
  const std::string file = (directory / "in/a.txt").string();
  const TextFiles found =
      find_text_files({file, (directory / "in/./a.txt").string(), (directory / "in").string(),
                       (directory / "link.txt").string(), (directory / "*.txt").string()});
  REQUIRE(names_of(found) == Names{"a.txt"});
  REQUIRE(found.files[0].path == file);
  REQUIRE_THAT(found.left_out, Contains("a file that is read already: 5 ("));
}

TEST_CASE("a pattern gives the names that a shell would") {
  const TemporaryDirectory directory;
  for (const char* name : {"x/sub/b.md", "y/sub/b.md", "x/c.md"})
    write_bytes(directory / name, "-");
  const auto find = [&](const char* pattern) {
    return names_of(find_text_files({(directory / pattern).string()}));
  };
  REQUIRE(find("*/sub/b.*") == Names{"b.md", "b.md"});
  REQUIRE(find("?") == Names{"c.md", "sub/b.md", "sub/b.md"});
  REQUIRE_THROWS_WITH(find("*.cc"), Contains("no file matches it as a pattern"));
}

TEST_CASE("a folder that holds more data in other formats than text is refused") {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9000\n";
  const std::string body(500, 'x');
  for (const auto& [name, data, says] : std::vector<std::array<std::string, 3>>{
           {"a.jsonl.lz4", "\x04\x22\x4d\x18" + body, "decompress it: lz4 -dk "},
           {"a.tar.gz", gzip(std::string(257, 'n') + bytes("ustar\0", 6) + body), "tar -xf "},
           {"a.jsonl", pointer, "git lfs pull"},
           {"a.jsonl.gz", pointer, "git lfs pull"},
           {"a.jsonl", bytes("\xff\xfeh\0", 4) + body, "iconv -f UTF-16"},
           {"a.txt", body + bytes("\0", 1), "tr -d '\\000'"}}) {
    CAPTURE(name, says);
    const TemporaryDirectory directory;
    write_bytes(directory / "README.md", "Read me.");
    write_bytes(directory / name, data);
    const std::string folder = directory.path().string();
    REQUIRE_THROWS_WITH(find_text_files({folder}),
                        Contains(folder + ": 1 files with 8 bytes are text") &&
                            Contains("left out: ") && Contains(says) &&
                            Contains("or name the files to read"));
    if (data == pointer) continue;  // The file itself is much larger.
    write_bytes(directory / "long.txt", std::string(20000, 'x'));
    REQUIRE_THAT(find_text_files({folder}).left_out, Contains(name));
  }
  const TemporaryDirectory directory;
  write_bytes(directory / "photo", bytes("\0\1", 2));
  REQUIRE_THROWS_WITH(find_text_files({directory.path().string()}),
                      Contains("0 files with 0 bytes are text; left out: binary: 1"));
}

TEST_CASE("a named file in another format is refused with the tool that converts it") {
  const TemporaryDirectory directory;
  const std::map<std::string, std::string> formats = {
      {"\x1f\x8b\x08 x", "gzip"},
      {"\x28\xb5\x2f\xfd x", "Zstandard"},
      {"BZh91AY&SY x", "bzip2"},
      {"PK\x03\x04 x", "a zip archive"},
      {"7z\xbc\xaf\x27\x1c x", "7-Zip"},
      {"\x04\x22\x4d\x18 x", "LZ4"},
      {"Obj\x01 x", "Avro"},
      {"%PDF-1.7", "PDF"},
      {"\x93NUMPY\x01", "a NumPy array"},
      {"\xfe\xff x", "UTF-16"},
      {bytes("SQLite format 3\0", 16), "a SQLite database"}};
  for (const auto& [data, format] : formats) {
    const fs::path path = directory / "a.txt";
    write_bytes(path, data);
    REQUIRE_THROWS_WITH(find_text_files({path.string()}),
                        Contains("a.txt: is " + format) && !Contains("{}"));
    write_bytes(directory / "a.bin", data);
    REQUIRE(find_text_files({(directory / "a.bin").string()}).files.size() == 1);
    REQUIRE(find_text_files({path.string()}, true).files.size() == 1);
  }
  for (const char* text :
       {"ORC is a format", "PAR1", "BZh", "PK", "%PDF", "\xef\xbb\xbfmarked", ""}) {
    write_bytes(directory / "a.txt", text);
    REQUIRE(find_text_files({(directory / "a.txt").string()}).files.size() == 1);
  }
}

}  // namespace
}  // namespace tessera

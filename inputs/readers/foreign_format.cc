// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/foreign_format.h"

#include <array>
#include <charconv>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/"sv;
constexpr std::string_view kLfsSize = "\nsize "sv;

struct Magic {
  std::string_view bytes;
  ForeignFormat format;
  size_t offset = 0;
  bool needs_nul = false;  // Text may begin so, but has no NUL.
};

constexpr std::string_view kToLines =
    "convert it: python3 -c \"import pandas; pandas.read_FORMAT('FILE')"
    ".to_json('FILE.jsonl', orient='records', lines=True)\""sv;

constexpr std::array kMagics = {
    Magic{"\x1f\x8b\x08"sv, {"gzip", "give it a name that ends in .gz"}},
    Magic{"\x28\xb5\x2f\xfd"sv, {"Zstandard", "give it a name that ends in .zst"}},
    Magic{"\xfd"
          "7zXZ\0"sv,
          {"xz", "decompress it: xz -dk FILE"}},
    Magic{"1AY&SY"sv, {"bzip2", "decompress it: bzip2 -dk FILE"}, 4},
    Magic{"\x04\x22\x4d\x18"sv, {"LZ4", "decompress it: lz4 -dk FILE"}},
    Magic{"LZIP\x01"sv, {"lzip", "decompress it: lzip -dk FILE"}},
    Magic{"\xff\x06\0\0sNaPpY"sv, {"Snappy", "decompress it: python3 -m snappy -d FILE FILE.txt"}},
    Magic{"7z\xbc\xaf\x27\x1c"sv, {"7-Zip", "extract its files: 7z x FILE"}},
    Magic{"PK\x03\x04"sv, {"a zip archive", "extract its files: unzip FILE"}},
    Magic{"Rar!\x1a\x07"sv, {"a RAR archive", "extract its files: unrar x FILE"}},
    Magic{"ustar"sv, {"a tar archive", "extract its files: tar -xf FILE"}, 257, true},
    Magic{"PAR1\x15"sv, {"Parquet", kToLines}},
    Magic{"ORC"sv, {"ORC", kToLines}, 0, true},
    Magic{"ARROW1\0\0"sv, {"Arrow", kToLines}},
    // Streams of Arrow, as the library `datasets` stores them.
    Magic{"\xff\xff\xff\xff"sv,
          {"Arrow",
           "convert it: python3 -c \"import datasets; "
           "datasets.Dataset.from_file('FILE').to_json('FILE.jsonl')\""}},
    Magic{"Obj\x01"sv, {"Avro", "convert it: java -jar avro-tools.jar tojson FILE"}},
    Magic{"\x89HDF\r\n\x1a\n"sv,
          {"HDF5", "a token file is read by FlatTokensInput (docs/data.md)", false}},
    Magic{"\x93NUMPY"sv,
          {"a NumPy array", "read tokens from it as a .bin file (docs/data.md)", false}},
    Magic{"MMIDIDX\0"sv, {"the index of Megatron's tokens", "name the .bin file beside it", false}},
    Magic{"SQLite format 3\0"sv, {"a SQLite database", "export its texts as lines of JSON", false}},
    Magic{"%PDF-"sv, {"PDF", "convert it: pdftotext FILE", false}},
    Magic{"\xff\xfe"sv, {"UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE"}},
    Magic{"\xfe\xff"sv, {"UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE"}},
    Magic{kLfsPointer,
          {"a pointer of Git LFS in the place of the file", "fetch the file: git lfs pull"}},
};

void replace_all(std::string* text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text->find(from, at)) != std::string::npos; at += to.size())
    text->replace(at, from.size(), to);
}

}  // namespace

const ForeignFormat* foreign_format(std::string_view head) {
  for (const Magic& magic : kMagics)
    if (head.size() >= magic.offset && head.substr(magic.offset).starts_with(magic.bytes) &&
        (!magic.needs_nul || head.find('\0') != std::string_view::npos))
      return &magic.format;
  return nullptr;
}

std::string describe(const ForeignFormat& format, const std::filesystem::path& path) {
  std::string advice(format.advice);
  replace_all(&advice, "FORMAT",
              format.name == "ORC"     ? "orc"
              : format.name == "Arrow" ? "feather"
                                       : "parquet");
  replace_all(&advice, "FILE", path.string());
  return fmt::format("is {}, which is not read as text; {}", format.name, advice);
}

std::string head_of(ByteSource& source) {
  std::string head(kHeadBytes, '\0');
  size_t size = 0;
  try {
    for (size_t got = 1; got > 0 && size < head.size(); size += got)
      got = source.read(head.data() + size, head.size() - size);
  } catch (const Error&) {  // The reader reports it in its place.
  }
  head.resize(size);
  source.seek(0);
  return head;
}

int64_t size_in_lfs_pointer(std::string_view head) {
  const size_t at = head.find(kLfsSize);
  if (!head.starts_with(kLfsPointer) || at == std::string_view::npos) return -1;
  int64_t size = -1;
  const std::string_view number = head.substr(at + kLfsSize.size());
  std::from_chars(number.data(), number.data() + number.size(), size);
  return size;
}

}  // namespace tessera

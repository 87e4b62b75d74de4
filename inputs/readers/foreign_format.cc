// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/foreign_format.h"

#include <array>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kGzip = "gzip", kZstandard = "Zstandard";

struct Magic {
  std::string_view bytes;
  ForeignFormat format;
  size_t offset = 0;
};

constexpr ForeignFormat kArrow = {"Arrow",
                                  "convert it: python3 -c \"import datasets; "
                                  "datasets.Dataset.from_file('{0}').to_json('{0}.jsonl')\""};
constexpr ForeignFormat kUtf16 = {"UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 {}"};

constexpr std::array kMagics = {
    Magic{"\x1f\x8b\x08"sv, {kGzip, "give it a name that ends in .gz"}},
    Magic{"\x28\xb5\x2f\xfd"sv, {kZstandard, "give it a name that ends in .zst"}},
    Magic{"\xfd\x37zXZ\0"sv, {"xz", "decompress it: xz -dk {}"}},
    Magic{"1AY&SY"sv, {"bzip2", "decompress it: bzip2 -dk {}"}, 4},
    Magic{"\x04\x22\x4d\x18"sv, {"LZ4", "decompress it: lz4 -dk {}"}},
    Magic{"7z\xbc\xaf\x27\x1c"sv, {"7-Zip", "extract its files: 7z x {}"}},
    Magic{"PK\x03\x04"sv, {"a zip archive", "extract its files: unzip {}"}},
    Magic{"ustar"sv, {"a tar archive", "extract its files: tar -xf {}"}, 257},
    Magic{"PAR1\x15"sv,
          {"Parquet",
           "convert it: python3 -c \"import pandas; pandas.read_parquet('{0}')"
           ".to_json('{0}.jsonl', orient='records', lines=True)\""}},
    Magic{"ARROW1\0\0"sv, kArrow},
    Magic{"\xff\xff\xff\xff"sv, kArrow},  // A stream, as the library `datasets` stores it.
    Magic{"\x89HDF\r\n\x1a\n"sv, {"HDF5", "FlatTokensInput reads token files", 0}},
    Magic{"\x93NUMPY"sv,
          {"a NumPy array",
           "convert it: python3 -c \"import numpy; "
           "numpy.load('{0}').astype('u4').tofile('{0}.bin')\", and give --token_dtype=u32",
           0}},
    Magic{"MMIDIDX\0"sv, {"the index of Megatron's tokens", "name the .bin file beside it", 0}},
    Magic{"SQLite format 3\0"sv, {"a SQLite database", "export its texts", 0}},
    Magic{"%PDF-"sv, {"PDF", "convert it: pdftotext {}", 0}},
    Magic{"\xff\xfe"sv, kUtf16},
    Magic{"\xfe\xff"sv, kUtf16},
    Magic{"version https://git-lfs.github.com/spec/"sv,
          {"a pointer of Git LFS", "fetch the file: git lfs pull", 1 << 30}},
};

}  // namespace

const ForeignFormat* foreign_format(std::string_view head) {
  for (const Magic& magic : kMagics)
    if (head.size() >= magic.offset && head.substr(magic.offset).starts_with(magic.bytes))
      return &magic.format;
  return nullptr;
}

std::string describe(const ForeignFormat& format, const std::filesystem::path& path) {
  return fmt::format("is {}, which is not read as text; {}", format.name,
                     fmt::format(fmt::runtime(format.advice), path.string()));
}

std::string head_of(ByteSource& source) {
  std::string head(kHeadBytes, '\0');
  size_t size = 0;
  try {
    for (size_t got = 1; got > 0 && size < head.size(); size += got)
      got = source.read(head.data() + size, head.size() - size);
  } catch (const Error&) {  // The reader reports it later.
  }
  head.resize(size);
  source.seek(0);
  return head;
}

std::unique_ptr<ByteSource> decompress_by_name(std::unique_ptr<ByteSource> source,
                                               const std::filesystem::path& path) {
  const std::string extension = lower_extension(path);
  if (extension != ".gz" && extension != ".zst") return source;
  const ForeignFormat* const format = foreign_format(head_of(*source));
  if (format != nullptr && format->name != kGzip && format->name != kZstandard) return source;
  return extension == ".gz" ? decompress_gzip(std::move(source))
                            : decompress_zstd(std::move(source));
}

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/foreign_format.h"

#include <array>

#include <fmt/format.h>

#include "core/base/error.h"
#include "inputs/readers/compression.h"

namespace tessera {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes;
  std::string_view name;
  std::string_view advice;
  int64_t corpus_bytes = 1;
  size_t offset = 0;
};

constexpr std::string_view kInstallArrow =
    "reading it needs Apache Arrow's C++ library: install it (python3 -m pip install pyarrow) and "
    "build Tessera again, or convert it to lines of JSON";
constexpr std::string_view kConvertUtf16 = "convert it: iconv -f UTF-16 -t UTF-8 {}";

constexpr std::array kMagics = {
    Magic{"\x04\x22\x4d\x18"sv, "LZ4", "decompress it: lz4 -dk {}"},
    Magic{"7z\xbc\xaf\x27\x1c"sv, "7-Zip", "extract its files: 7z x {}"},
    Magic{"PK\x03\x04"sv, "a zip archive", "extract its files: unzip {}"},
    Magic{"ustar"sv, "a tar archive", "extract its files: tar -xf {}", 1, 257},
    Magic{"PAR1\x15"sv, "Parquet", kInstallArrow},
    Magic{"ARROW1\0\0"sv, "Arrow", kInstallArrow},
    Magic{"\xff\xff\xff\xff"sv, "Arrow", kInstallArrow},  // As the library `datasets` stores it.
    Magic{"Obj\x01"sv, "Avro", "convert it to lines of JSON: avro-tools tojson {0} > {0}.jsonl"},
    Magic{"\x89HDF\r\n\x1a\n"sv, "HDF5", "FlatTokensInput reads token files", 0},
    Magic{"\x93NUMPY"sv, "a NumPy array",
          "convert it: python3 -c \"import numpy; "
          "numpy.load('{0}').astype('u4').tofile('{0}.bin')\", and give --token_dtype=u32",
          0},
    Magic{"MMIDIDX\0"sv, "the index of Megatron's tokens", "name the .bin file beside it", 0},
    Magic{"SQLite format 3\0"sv, "a SQLite database", "export its texts", 0},
    Magic{"%PDF-"sv, "PDF", "convert it: pdftotext {}", 0},
    Magic{"\xff\xfe"sv, "UTF-16", kConvertUtf16},
    Magic{"\xfe\xff"sv, "UTF-16", kConvertUtf16},
    Magic{"version https://git-lfs.github.com/spec/"sv, "a pointer of Git LFS",
          "fetch the file: git lfs pull", 1 << 30},
};

}  // namespace

std::optional<ForeignFormat> foreign_format(std::string_view head) {
  if (const Compression* const compression = compression_by_magic(head))
    return ForeignFormat{compression->name,
                         fmt::format("give it a name that ends in {}", compression->extension)};
  for (const Magic& magic : kMagics)
    if (head.size() >= magic.offset && head.substr(magic.offset).starts_with(magic.bytes))
      return ForeignFormat{magic.name, std::string(magic.advice), magic.corpus_bytes};
  return std::nullopt;
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

std::string head_of_file(const std::filesystem::path& path) {
  return head_of(*decompress_by_name(open_file(path), path));
}

std::unique_ptr<ByteSource> decompress_by_name(std::unique_ptr<ByteSource> source,
                                               const std::filesystem::path& path) {
  const Compression* const compression = compression_by_name(path);
  if (compression == nullptr) return source;
  const std::string head = head_of(*source);
  const bool is_other = compression_by_magic(head) == nullptr && foreign_format(head);
  return is_other ? std::move(source) : compression->decompress(std::move(source));
}

}  // namespace tessera

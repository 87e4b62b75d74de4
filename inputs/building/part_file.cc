// SPDX-License-Identifier: Apache-2.0
#include "inputs/building/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr int64_t kStartsAtATime = 1 << 18;

std::filesystem::path with_suffix(std::filesystem::path stem, const char* suffix) {
  stem += suffix;
  return stem;
}

// What lies there, cut to `bytes`, to be added to.
int open_at(const std::filesystem::path& path, int64_t bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) fail("{}: cannot create: {}", path.string(), std::strerror(errno));
  if (::ftruncate(descriptor, bytes) != 0 || ::lseek(descriptor, bytes, SEEK_SET) < 0) {
    const int reason = errno;
    ::close(descriptor);
    fail("{}: cannot cut to {} bytes: {}", path.string(), bytes, std::strerror(reason));
  }
  return descriptor;
}

void write_all(int descriptor, std::span<const std::byte> bytes,
               const std::filesystem::path& stem) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("{}: cannot write: {}", stem.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void read_all(std::ifstream& stream, std::span<std::byte> bytes,
              const std::filesystem::path& stem) {
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (stream.gcount() != static_cast<std::streamsize>(bytes.size()))
    fail("{}: has been changed or cut; remove the folder and build again", stem.string());
}

// The ids of a part from one on.
class IdReader {
 public:
  IdReader(const std::filesystem::path& stem, int64_t vocab_size, int64_t begin)
      : stem_(stem),
        is_narrow_(DocumentIds::is_narrow(vocab_size)),
        stream_(with_suffix(stem, ".ids"), std::ios::binary) {
    stream_.seekg(begin * DocumentIds::id_bytes(vocab_size));
  }

  // Until the next call.
  std::span<const int32_t> next(int64_t count) {
    block_.resize(static_cast<size_t>(count));
    if (is_narrow_) {
      packed_.resize(block_.size());
      read_all(stream_, std::as_writable_bytes(std::span(packed_)), stem_);
      std::copy(packed_.begin(), packed_.end(), block_.begin());
    } else {
      read_all(stream_, std::as_writable_bytes(std::span(block_)), stem_);
    }
    return block_;
  }

 private:
  const std::filesystem::path& stem_;
  bool is_narrow_;
  std::ifstream stream_;
  std::vector<uint16_t> packed_;
  std::vector<int32_t> block_;
};

}  // namespace

PartWriter::PartWriter(std::filesystem::path stem, int64_t vocab_size, const PartSizes& sizes)
    : stem_(std::move(stem)), id_bytes_(DocumentIds::id_bytes(vocab_size)), sizes_(sizes) {}

PartWriter::~PartWriter() {
  if (ids_ >= 0) ::close(ids_);
  if (lengths_ >= 0) ::close(lengths_);
}

void PartWriter::open() {
  ids_ = open_at(with_suffix(stem_, ".ids"), sizes_.ids * id_bytes_);
  lengths_ = open_at(with_suffix(stem_, ".lengths"), sizes_.lengths * 8);
}

void PartWriter::append(const DocumentIds& documents) {
  if (documents.empty()) return;
  if (ids_ < 0) open();
  write_all(ids_, documents.bytes(), stem_);
  write_all(lengths_, std::as_bytes(std::span(documents.lengths())), stem_);
  sizes_.ids += documents.size();
  sizes_.lengths += static_cast<int64_t>(documents.lengths().size());
  has_unsynced_ = true;
}

void PartWriter::sync() {
  if (!has_unsynced_) return;
  for (const int descriptor : {ids_, lengths_})
    if (::fdatasync(descriptor) != 0)
      fail("{}: cannot sync to disk: {}", stem_.string(), std::strerror(errno));
  has_unsynced_ = false;
}

bool part_is_there(const std::filesystem::path& stem, int64_t vocab_size, const PartSizes& sizes) {
  if (sizes.ids == 0) return true;
  std::error_code error;
  const auto size_of = [&](const char* suffix) {
    const auto size = std::filesystem::file_size(with_suffix(stem, suffix), error);
    return error ? 0 : static_cast<int64_t>(size);
  };
  return size_of(".ids") >= sizes.ids * DocumentIds::id_bytes(vocab_size) &&
         size_of(".lengths") >= sizes.lengths * 8;
}

void read_part(const std::filesystem::path& stem, int64_t vocab_size, const PartSizes& sizes,
               const TokenRange& range,
               const std::function<void(std::span<const int32_t> ids, bool goes_on)>& visit) {
  CHECK(range.begin >= 0 && range.end <= sizes.ids);
  if (range.size() <= 0) return;
  IdReader ids(stem, vocab_size, range.begin);
  std::ifstream lengths(with_suffix(stem, ".lengths"), std::ios::binary);
  const auto damaged = [&] {
    fail("{}: has been changed; remove the folder and build again", stem.string());
  };
  std::vector<uint64_t> some(kStartsAtATime);
  int64_t begin = 0;  // Of a document.
  for (int64_t at = 0; begin < range.end; at += kStartsAtATime) {
    if (at >= sizes.lengths) damaged();
    some.resize(static_cast<size_t>(std::min(kStartsAtATime, sizes.lengths - at)));
    read_all(lengths, std::as_writable_bytes(std::span(some)), stem);
    for (const uint64_t length : some) {
      const auto size = static_cast<int64_t>(length & ~DocumentIds::kGoesOn);
      if (size > sizes.ids - begin) damaged();
      int64_t from = std::max(begin, range.begin);
      for (const int64_t end = std::min(begin + size, range.end); from < end;) {
        const auto block = ids.next(std::min(kStartsAtATime, end - from));
        visit(block, from > begin || (length & DocumentIds::kGoesOn) != 0);
        from += static_cast<int64_t>(block.size());
      }
      begin += size;
    }
  }
}

}  // namespace tessera

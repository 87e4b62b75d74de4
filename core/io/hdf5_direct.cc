// SPDX-License-Identifier: Apache-2.0
// Implements Hdf5DirectReader of hdf5.h. HDF5 reads each piece once, and the reader looks for the
// same bytes at the expected file offset, then in the chunk index. Later reads of the piece are one
// pread.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/io/hdf5.h"
#include "core/io/hdf5_internal.h"

namespace tessera {

using namespace hdf5_internal;

namespace {

// The piece size of a contiguous dataset. The pieces of a chunked dataset are its chunks.
constexpr int64_t kPieceElements = 65536;
// HDF5 reads datasets with smaller chunks (each piece takes some memory) or larger ones (each is
// first read whole).
constexpr int64_t kLeastChunkElements = 1024;
constexpr int64_t kMostChunkBytes = int64_t{16} << 20;
constexpr int64_t kFletcherBytes = 4;  // Checksum after a chunk.

// The file offset of a piece, or one of these special values.
constexpr int64_t kUnseen = 0;
constexpr int64_t kThroughHdf5 = -1;

// Size and modification time of a file, to detect changes.
struct FileState {
  int64_t size = 0;
  timespec written{};
  bool operator==(const FileState& other) const {
    return size == other.size && written.tv_sec == other.written.tv_sec &&
           written.tv_nsec == other.written.tv_nsec;
  }
};

std::optional<FileState> state_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return std::nullopt;
  return FileState{status.st_size, status.st_mtim};
}

// Returns how many bytes could be read.
int64_t read_at(int descriptor, int64_t offset, std::span<std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::pread(descriptor, bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(offset + static_cast<int64_t>(done)));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<int64_t>(done);
}

// Returns the file descriptor of HDF5, so that both read the same file even if it is renamed. -1 if
// HDF5 does not use the POSIX driver.
int descriptor_of(hid_t dataset) {
  const Hdf5Handle file(H5Iget_file_id(dataset));
  const Hdf5Handle access(H5Fget_access_plist(file.id()));
  if (H5Pget_driver(access.id()) != H5FD_SEC2) return -1;
  int* descriptor = nullptr;
  if (H5Fget_vfd_handle(file.id(), access.id(), reinterpret_cast<void**>(&descriptor)) < 0)
    return -1;
  return *descriptor;
}

}  // namespace

struct Hdf5DirectReader::Impl {
  const Hdf5Dataset& dataset;
  std::string where;
  int64_t element_bytes;
  int64_t elements;
  int descriptor = -1;
  FileState opened;
  int64_t piece_elements = 0;  // 0: HDF5 reads everything.
  int64_t stride = 0;          // Bytes from one piece to the next, if they are adjacent.
  bool chunked = false;

  mutable std::unique_ptr<std::atomic<int64_t>[]> places;
  mutable std::mutex mutex;
  mutable std::map<int64_t, int64_t> known;  // File offsets of pieces, by piece.

  Impl(const Hdf5Dataset& from, std::string name)
      : dataset(from),
        where(std::move(name)),
        element_bytes(stored_type_bytes(from.type())),
        elements(from.elements()) {
    silence();
    if (from.shape().size() != 1) return;
    descriptor = descriptor_of(dataset.id());
    const std::optional<FileState> state = descriptor < 0 ? std::nullopt : state_of(descriptor);
    if (!state) return;
    opened = *state;
    read_layout();
    places = std::make_unique<std::atomic<int64_t>[]>(static_cast<size_t>(num_pieces()));
  }

  int64_t num_pieces() const {
    return piece_elements == 0 ? 0 : (elements + piece_elements - 1) / piece_elements;
  }
  int64_t piece_size(int64_t piece) const {
    return std::min(piece_elements, elements - piece * piece_elements);
  }

  void read_layout() {
    const Hdf5Handle list(H5Dget_create_plist(dataset.id()));
    if (H5Pget_layout(list.id()) == H5D_CONTIGUOUS) {
      const haddr_t place = H5Dget_offset(dataset.id());
      if (place == HADDR_UNDEF || place == 0) return;  // Stored in another file, or not at all.
      piece_elements = kPieceElements;
      stride = kPieceElements * element_bytes;
      known[0] = static_cast<int64_t>(place);
      return;
    }
    hsize_t chunk = 0;
    if (H5Pget_layout(list.id()) != H5D_CHUNKED || H5Pget_chunk(list.id(), 1, &chunk) != 1) return;
    const auto size = static_cast<int64_t>(chunk);
    if (size < kLeastChunkElements || size > kMostChunkBytes / element_bytes) return;
    stride = size * element_bytes;
    for (int i = 0; i < H5Pget_nfilters(list.id()); ++i) {
      size_t values = 0;
      unsigned flags = 0;
      if (H5Pget_filter2(list.id(), static_cast<unsigned>(i), &flags, &values, nullptr, 0, nullptr,
                         nullptr) != H5Z_FILTER_FLETCHER32)
        return;
      stride += kFletcherBytes;
    }
    chunked = true;
    piece_elements = size;
  }

  // Asks the chunk index of HDF5, which is searched linearly: expensive with many chunks.
  std::optional<int64_t> place_by_index(int64_t piece) const {
    if (!chunked) return std::nullopt;
    const auto offset = static_cast<hsize_t>(piece) * static_cast<hsize_t>(piece_elements);
    unsigned filter_mask = 0;
    haddr_t place = HADDR_UNDEF;
    hsize_t bytes = 0;
    if (H5Dget_chunk_info_by_coord(dataset.id(), &offset, &filter_mask, &place, &bytes) < 0 ||
        place == HADDR_UNDEF || static_cast<int64_t>(place) <= 0)
      return std::nullopt;
    return static_cast<int64_t>(place);
  }

  bool holds(int64_t place, std::span<const std::byte> truth) const {
    if (place <= 0 || place > opened.size - std::ssize(truth)) return false;
    thread_local std::vector<std::byte> found;  // Reused: allocation would dominate.
    found.resize(truth.size());
    return read_at(descriptor, place, found) == std::ssize(truth) &&
           std::memcmp(found.data(), truth.data(), truth.size()) == 0;
  }

  // Finds a piece. Pieces are mostly adjacent, so it is first looked for at its distance from the
  // nearest known ones, then in the index of HDF5.
  int64_t find(int64_t piece, std::span<const std::byte> truth) const {
    std::vector<int64_t> candidates;
    const auto after = known.upper_bound(piece);
    if (after != known.begin()) {
      const auto before = std::prev(after);
      candidates.push_back(before->second + (piece - before->first) * stride);
    }
    if (after != known.end()) candidates.push_back(after->second - (after->first - piece) * stride);
    for (const int64_t place : candidates)
      if (holds(place, truth)) return place;
    const std::optional<int64_t> place = place_by_index(piece);
    return place && holds(*place, truth) ? *place : kThroughHdf5;
  }

  void check_unchanged() const {
    const std::optional<FileState> now = state_of(descriptor);
    if (!now || !(*now == opened))
      fail("{}: the file was changed while it was in use: it had {} bytes, now it has {}", where,
           opened.size, now ? now->size : 0);
  }

  // Reads a whole piece with HDF5 and finds its file offset.
  void read_first(int64_t piece, int64_t begin, std::span<std::byte> bytes) const {
    thread_local std::vector<std::byte> truth;
    truth.resize(static_cast<size_t>(piece_size(piece) * element_bytes));
    dataset.read({{piece * piece_elements}, {piece_size(piece)}}, truth);
    std::copy_n(truth.begin() + begin * element_bytes, bytes.size(), bytes.begin());
    const std::lock_guard lock(mutex);
    std::atomic<int64_t>& place = places[static_cast<size_t>(piece)];
    if (place != kUnseen) return;  // Another thread has found it.
    const int64_t found = find(piece, truth);
    if (found != kThroughHdf5) known[piece] = found;
    place = found;
  }

  // Reads the elements of a piece from `begin` on.
  void read_within(int64_t piece, int64_t begin, std::span<std::byte> bytes) const {
    const int64_t place = places[static_cast<size_t>(piece)].load(std::memory_order_acquire);
    if (place == kUnseen) return read_first(piece, begin, bytes);
    if (place == kThroughHdf5)
      return dataset.read({{piece * piece_elements + begin}, {std::ssize(bytes) / element_bytes}},
                          bytes);
    const int64_t offset = place + begin * element_bytes;
    if (const int64_t got = read_at(descriptor, offset, bytes); got != std::ssize(bytes))
      fail("{}: {} bytes at {} of the file could not be read ({}); is the file truncated?", where,
           bytes.size(), offset, got >= 0 ? fmt::format("{} were", got) : std::strerror(errno));
  }

  void read(int64_t begin, std::span<std::byte> bytes) const {
    const int64_t size = std::ssize(bytes) / element_bytes;
    CHECK(begin >= 0 && size * element_bytes == std::ssize(bytes) && begin + size <= elements,
          "elements [{}, {}) of {}", begin, begin + size, elements);
    if (piece_elements == 0) return dataset.read({{begin}, {size}}, bytes);
    for (int64_t at = begin; at < begin + size;) {
      const int64_t piece = at / piece_elements;
      const int64_t end = std::min(begin + size, (piece + 1) * piece_elements);
      read_within(piece, at - piece * piece_elements,
                  bytes.subspan(static_cast<size_t>((at - begin) * element_bytes),
                                static_cast<size_t>((end - at) * element_bytes)));
      at = end;
    }
    check_unchanged();
  }
};

Hdf5DirectReader::Hdf5DirectReader(const Hdf5Dataset& dataset, std::string where)
    : impl_(std::make_unique<Impl>(dataset, std::move(where))) {}
Hdf5DirectReader::~Hdf5DirectReader() = default;
Hdf5DirectReader::Hdf5DirectReader(Hdf5DirectReader&&) noexcept = default;

void Hdf5DirectReader::read(int64_t begin, std::span<std::byte> bytes) const {
  impl_->read(begin, bytes);
}

int64_t Hdf5DirectReader::pieces_found() const {
  const std::atomic<int64_t>* places = impl_->places.get();
  return std::count_if(places, places + num_pieces(), [](const auto& place) { return place > 0; });
}

int64_t Hdf5DirectReader::num_pieces() const { return impl_->num_pieces(); }

}  // namespace tessera

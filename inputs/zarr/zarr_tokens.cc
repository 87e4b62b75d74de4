// SPDX-License-Identifier: Apache-2.0
#include "inputs/zarr/zarr_tokens.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/zarr/zarr_array.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostZarrIds = int64_t{1} << 31;

// The elements of an array, one chunk at a time.
class Elements {
 public:
  explicit Elements(const ZarrArray& array) : array_(array) {}

  // The next ones, at most `most`; at least one unless all are used.
  std::span<const uint64_t> take(int64_t most) {
    if (used_ == chunk_.size()) {
      if (next_ == array_.num_chunks()) return {};
      chunk_ = array_.read_chunk(next_++);
      used_ = 0;
    }
    const size_t count = std::min(chunk_.size() - used_, static_cast<size_t>(most));
    used_ += count;
    return std::span(chunk_).subspan(used_ - count, count);
  }

 private:
  const ZarrArray& array_;
  std::vector<uint64_t> chunk_;
  size_t used_ = 0;
  int64_t next_ = 0;
};

class SplitImport {
 public:
  SplitImport(const fs::path& store, const std::string& split, FlatTokensWriter* writer)
      : where_((store / split).string()),
        tokens_(store / split / "encoded_tokens"),
        starts_(store / split / "seq_starts"),
        max_token_id_(zarr_max_token_id(store, split)),
        writer_(writer),
        encoded_(tokens_) {}

  ImportedSplit run() {
    check_sizes();
    Elements starts(starts_);
    int64_t number = 0;
    for (auto some = starts.take(kAll); !some.empty(); some = starts.take(kAll))
      for (const uint64_t start : some) take_start(number++, start);
    if (begin_ != tokens_.size())
      fail("{}: seq_starts ends at {}, but there are {} tokens", where_, begin_, tokens_.size());
    return imported_;
  }

 private:
  static constexpr int64_t kAll = INT64_MAX;

  void check_sizes() const {
    if (tokens_.size() == 0) fail("{}: has no tokens", where_);
    if (starts_.size() < 2)
      fail("{}: seq_starts has {} entries; expected one for each document and one for the end",
           where_, starts_.size());
  }

  // Entry `number` ends the document before it.
  void take_start(int64_t number, uint64_t start) {
    if (number == 0) {
      if (start != 0) fail("{}: seq_starts[0] is {}; expected 0", where_, start);
      return;
    }
    if (start > static_cast<uint64_t>(tokens_.size()))
      fail("{}: seq_starts[{}] is {}, but there are {} tokens", where_, number, start,
           tokens_.size());
    const auto end = static_cast<int64_t>(start);
    if (end < begin_)
      fail("{}: seq_starts[{}] is {}, less than the {} before it", where_, number, end, begin_);
    copy_document(end);
  }

  void copy_document(int64_t end) {
    if (begin_ == end) ++imported_.empty;
    if (begin_ < end) ++imported_.documents;
    imported_.tokens += end - begin_;
    for (bool goes_on = false; begin_ < end; goes_on = true) {
      const std::vector<int32_t> ids = ids_of(encoded_.take(end - begin_), goes_on);
      if (goes_on) {
        writer_->extend_document(ids);
      } else {
        writer_->add_document(ids);
      }
      begin_ += static_cast<int64_t>(ids.size());
    }
  }

  std::vector<int32_t> ids_of(std::span<const uint64_t> encoded, bool goes_on) const {
    std::vector<int32_t> ids;
    ids.reserve(encoded.size());
    for (size_t i = 0; i < encoded.size(); ++i) {
      const bool begins = !goes_on && i == 0;
      const int64_t at = begin_ + static_cast<int64_t>(i);
      if (((encoded[i] & 1) != 0) != begins)
        fail("{}: token {} and seq_starts disagree on whether a document begins there", where_, at);
      const uint64_t id = encoded[i] >> 1;
      if (id > static_cast<uint64_t>(max_token_id_))
        fail("{}: token {} has id {}, beyond max_token_id {}", where_, at, id, max_token_id_);
      ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }

  std::string where_;
  ZarrArray tokens_;
  ZarrArray starts_;
  int64_t max_token_id_;
  FlatTokensWriter* writer_;
  Elements encoded_;
  int64_t begin_ = 0;  // Of the document that is next.
  ImportedSplit imported_;
};

}  // namespace

std::vector<std::string> zarr_splits(const fs::path& store) {
  if (!fs::is_directory(store)) fail("{}: no such folder", store.string());
  std::vector<std::string> splits;
  for (const auto& entry : fs::directory_iterator(store))
    if (fs::exists(entry.path() / "encoded_tokens"))
      splits.push_back(entry.path().filename().string());
  if (splits.empty())
    fail("{}: no zarr store of seqax's flat tokens: no group holds 'encoded_tokens'",
         store.string());
  std::sort(splits.begin(), splits.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a != "train", a) < std::pair(b != "train", b);
  });
  return splits;
}

int64_t zarr_max_token_id(const fs::path& store, const std::string& split) {
  const fs::path path = store / split / ".zattrs";
  if (!fs::exists(path))
    fail("{}: not there; seqax keeps the split's max_token_id in it", path.string());
  const Json id = parse_json(read_file(path), path.string()).at("max_token_id");
  if (id.as_integer() < 0 || id.as_integer() >= kMostZarrIds)
    fail("{} is {}, expected 0 to {}", id.where(), id.as_integer(), kMostZarrIds - 1);
  return id.as_integer();
}

ImportedSplit import_zarr_split(const fs::path& store, const std::string& split,
                                FlatTokensWriter* writer) {
  SplitImport import(store, split, writer);
  writer->begin_split(split);
  return import.run();
}

}  // namespace tessera

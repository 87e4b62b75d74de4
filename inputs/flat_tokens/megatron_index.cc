// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/megatron_index.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "inputs/readers/byte_source.h"

namespace tessera {
namespace {

using namespace std::string_view_literals;

// The header: a magic number, the version, a code of the ids' type, and two counts.
constexpr std::string_view kMagicOfIndex = "MMIDIDX\0\0"sv;
constexpr int64_t kIndexVersion = 1;
constexpr size_t kVersionAt = 9, kCodeAt = 17, kSequencesAt = 18, kDocumentsAt = 26;
constexpr int64_t kIndexHeader = 34;
constexpr char kCodeI16 = 3, kCodeI32 = 4, kCodeU16 = 8;
constexpr int64_t kNumbersAtATime = 1 << 14;
constexpr int64_t kShortVocabulary = 65500;

template <typename T>
void append_bytes(std::string* bytes, const T& value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

std::filesystem::path MegatronIndex::beside(const std::filesystem::path& tokens) {
  return std::filesystem::path(tokens).replace_extension(".idx");
}

MegatronIndex::MegatronIndex(const std::filesystem::path& path, int64_t token_file_bytes)
    : file_(ByteFile::open(path)) {
  std::string head(kIndexHeader, '\0');
  if (file_.size() >= kIndexHeader) file_.read_at(0, std::as_writable_bytes(std::span(head)));
  const auto number = [&](size_t at) { return from_bytes<int64_t>(head.data() + at); };
  const char code = head[kCodeAt];
  if (!head.starts_with(kMagicOfIndex) || number(kVersionAt) != kIndexVersion ||
      (code != kCodeI16 && code != kCodeI32 && code != kCodeU16))
    fail(
        "{}: is not Megatron's index of ids in i16, u16 or i32; to read the tokens beside it "
        "without it, give --token_dtype",
        path.string());
  token_bytes_ = code == kCodeI32 ? 4 : 2;
  num_tokens_ = token_file_bytes / token_bytes_;
  const int64_t sequences = number(kSequencesAt), marks = number(kDocumentsAt);
  constexpr int64_t kMost = int64_t{1} << 48;
  const int64_t sequence_bytes = sizeof(int32_t) + sizeof(int64_t);
  if (sequences < 0 || sequences > kMost || marks < 1 || marks > kMost ||
      file_.size() < kIndexHeader + sequences * sequence_bytes + marks * 8)
    fail("{}: its header says {} sequences and {} document marks, but the file has {} bytes",
         path.string(), sequences, marks, file_.size());
  pointers_ = {kIndexHeader + sequences * 4, sequences};
  documents_ = {kIndexHeader + sequences * sequence_bytes, marks};
  num_documents_ = marks - 1;
  int32_t last = 0;  // The length of the last sequence.
  if (sequences > 0)
    file_.read_at(pointers_.offset - 4, std::as_writable_bytes(std::span(&last, 1)));
  const int64_t end = sequences == 0 ? 0 : value(pointers_, sequences - 1) + last * token_bytes_;
  if (end != token_file_bytes)
    fail("{}: is of a token file of {} bytes, but the one beside it has {}", path.string(), end,
         token_file_bytes);
}

int64_t MegatronIndex::value(Block& block, int64_t at) {
  if (at < block.first || at >= block.first + static_cast<int64_t>(block.values.size())) {
    block.first = at / kNumbersAtATime * kNumbersAtATime;
    block.values.resize(static_cast<size_t>(std::min(kNumbersAtATime, block.count - block.first)));
    file_.read_at(block.offset + block.first * 8, std::as_writable_bytes(std::span(block.values)));
  }
  return block.values[static_cast<size_t>(at - block.first)];
}

int64_t MegatronIndex::begin(int64_t document) {
  const int64_t sequence = value(documents_, document);
  if (sequence < 0 || sequence > pointers_.count)
    fail("{}: document {} begins at sequence {} of {}", file_.path().string(), document, sequence,
         pointers_.count);
  const int64_t token =
      sequence == pointers_.count ? num_tokens_ : value(pointers_, sequence) / token_bytes_;
  if (token < 0 || token > num_tokens_)
    fail("{}: document {} begins at token {} of {}", file_.path().string(), document, token,
         num_tokens_);
  return token;
}

MegatronWriter::MegatronWriter(const std::filesystem::path& prefix, int64_t vocab_size)
    : tokens_(prefix.string() + ".bin"),
      index_(prefix.string() + ".idx"),
      is_short_(vocab_size < kShortVocabulary) {}

void MegatronWriter::add(const std::vector<int32_t>& document) {
  CHECK(document.size() <= std::numeric_limits<int32_t>::max());
  lengths_.push_back(static_cast<int32_t>(document.size()));
  if (!is_short_) return tokens_.write(std::as_bytes(std::span(document)));
  const std::vector<uint16_t> ids(document.begin(), document.end());
  tokens_.write(std::as_bytes(std::span(ids)));
}

void MegatronWriter::finish() {
  std::string head(kMagicOfIndex);
  append_bytes(&head, kIndexVersion);
  head.push_back(is_short_ ? kCodeU16 : kCodeI32);
  append_bytes(&head, num_documents());
  append_bytes(&head, num_documents() + 1);
  index_.write(std::as_bytes(std::span(head)));
  index_.write(std::as_bytes(std::span(lengths_)));
  std::vector<int64_t> numbers;
  int64_t at = 0;
  for (const int32_t length : lengths_) {
    numbers.push_back(at);
    at += length * (is_short_ ? 2 : 4);
  }
  index_.write(std::as_bytes(std::span(numbers)));
  numbers.push_back(0);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i);
  index_.write(std::as_bytes(std::span(numbers)));
  tokens_.finish();
  index_.finish();
}

}  // namespace tessera

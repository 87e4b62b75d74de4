// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/flat_tokens_input.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/base/error.h"
#include "core/io/storage/storage.h"
#include "inputs/readers/text_files.h"
#include "inputs/shuffle.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {
namespace {

constexpr uint64_t kPhaseKey = 0x7068617365u;

// Returns indices by decreasing length (stable counting sort).
std::vector<uint32_t> by_length(std::span<const int32_t> lengths, int32_t capacity) {
  std::vector<int64_t> next(static_cast<size_t>(capacity) + 2, 0);
  for (const int32_t length : lengths) {
    CHECK(length >= 1 && length <= capacity, "a length of {} for {}", length, capacity);
    ++next[static_cast<size_t>(capacity - length) + 1];
  }
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  std::vector<uint32_t> order(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i)
    order[static_cast<size_t>(next[static_cast<size_t>(capacity - lengths[i])]++)] =
        static_cast<uint32_t>(i);
  return order;
}

ExampleStream token_stream(const FlatTokensInput::HParams& p) {
  ExampleStream stream = example_stream(p);
  if (p.name.empty()) stream.name = p.split;
  stream.shuffle = p.shuffle;
  stream.era_length = p.era_length;
  stream.repeat = p.repeat;
  return stream;
}

RowOptions options_of(const FlatTokensInput::HParams& p, const ExampleStream& stream) {
  return {.packed = p.packed,
          .best_fit = p.best_fit,
          .labels = p.labels,
          .seq_len = stream.seq_len,
          .shifts = p.shuffle != Shuffle::kNone && p.repeat,
          .seed = stream.seed};
}

}  // namespace

BestFitPacking::BestFitPacking(std::span<const int32_t> lengths, int32_t capacity) {
  if (lengths.size() > std::numeric_limits<uint32_t>::max())
    fail("{} pieces of documents are more than best-fit packing takes (2^32)", lengths.size());
  std::vector<uint32_t> row_of(lengths.size());
  std::map<int32_t, std::vector<uint32_t>> open;  // Open rows by free room.
  uint32_t rows = 0;
  for (const uint32_t piece : by_length(lengths, capacity)) {
    const int32_t length = lengths[piece];
    const auto best = open.lower_bound(length);
    int32_t room = capacity;
    if (best == open.end()) {
      row_of[piece] = rows++;
    } else {
      room = best->first;
      row_of[piece] = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) open.erase(best);
    }
    if (room > length) open[room - length].push_back(row_of[piece]);
  }

  starts_.assign(static_cast<size_t>(rows) + 1, 0);
  for (const uint32_t row : row_of) ++starts_[row + 1];
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
  pieces_.resize(lengths.size());
  for (size_t i = 0; i < row_of.size(); ++i)
    pieces_[static_cast<size_t>(next[row_of[i]]++)] = static_cast<uint32_t>(i);
}

std::span<const uint32_t> BestFitPacking::row(int64_t number) const {
  CHECK(number >= 0 && number < num_rows(), "row {} of {}", number, num_rows());
  const auto begin = static_cast<size_t>(starts_[static_cast<size_t>(number)]);
  const auto end = static_cast<size_t>(starts_[static_cast<size_t>(number) + 1]);
  return std::span(pieces_).subspan(begin, end - begin);
}

FlatTokensRows::FlatTokensRows(const std::filesystem::path& path, const std::string& split,
                               const RowOptions& options)
    : path_(path), options_(options), reader_(path, split) {
  if (options.packed) {
    count_packed_rows();
  } else {
    find_document_windows();
    size_ = static_cast<int64_t>(document_windows_.size());
    if (options.best_fit) share_rows();
  }
}

void FlatTokensRows::count_packed_rows() {
  const int64_t positions = std::max<int64_t>(0, reader_.num_tokens() - tokens_ahead());
  size_ = (positions + options_.seq_len - 1) / options_.seq_len;
  if (const int64_t whole = positions / options_.seq_len; options_.shifts && whole >= 2) {
    size_ = whole - 1;
    max_phase_ = positions - size_ * options_.seq_len;
  }
}

// Divides documents: one longer than a row takes several rows, so that every token is a label once.
void FlatTokensRows::find_document_windows() {
  std::vector<uint64_t> starts(static_cast<size_t>(reader_.num_documents()) + 1);
  reader_.read_starts(0, starts);
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const auto end = static_cast<int64_t>(starts[i + 1]);
    for (auto begin = static_cast<int64_t>(starts[i]); begin + tokens_ahead() < end;
         begin += options_.seq_len)
      document_windows_.push_back(
          {begin, std::min(tokens_per_row(options_.labels, options_.seq_len), end - begin)});
  }
}

void FlatTokensRows::share_rows() {
  std::vector<int32_t> lengths;
  for (const Window& window : document_windows_)
    lengths.push_back(static_cast<int32_t>(window.size));
  shared_rows_.emplace(lengths,
                       static_cast<int32_t>(tokens_per_row(options_.labels, options_.seq_len)));
  size_ = shared_rows_->num_rows();
}

int64_t FlatTokensRows::phase(int64_t epoch) const {
  if (max_phase_ == 0) return 0;
  const uint64_t bits = mix_bits(static_cast<uint64_t>(epoch), mix_bits(options_.seed, kPhaseKey));
  return static_cast<int64_t>(bits % static_cast<uint64_t>(max_phase_ + 1));
}

FlatTokensRows::Window FlatTokensRows::packed_window(int64_t epoch, int64_t index) const {
  const int64_t begin = phase(epoch) + index * options_.seq_len;
  return {begin, std::min(tokens_per_row(options_.labels, options_.seq_len),
                          reader_.num_tokens() - begin)};
}

void FlatTokensRows::fill(int64_t epoch, int64_t index, const RowLayout& layout,
                          const TokenRow& row) const {
  thread_local std::vector<uint32_t> encoded;  // Reuses its memory.
  encoded.clear();
  const auto add = [&](const Window& window) {
    const size_t begin = encoded.size();
    encoded.resize(begin + static_cast<size_t>(window.size));
    reader_.read(window.begin, std::span(encoded).subspan(begin));
    // A piece of a document is a segment of its own.
    if (begin > 0) encoded[begin] = encode_token(token_id(encoded[begin]), true);
  };
  if (options_.packed) {
    add(packed_window(epoch, index));
  } else if (!shared_rows_) {
    add(document_windows_[static_cast<size_t>(index)]);
  } else {
    for (const uint32_t piece : shared_rows_->row(index)) add(document_windows_[piece]);
  }
  fill_row(layout, encoded, row);
}

std::unique_ptr<Tokenizer> tokenizer_of_tokens(const FlatTokensReader& reader,
                                               const std::filesystem::path& path,
                                               const std::string& given) {
  const std::string& name = reader.tokenizer_name();
  const std::string definition = given.empty() ? reader.tokenizer_definition() : "";
  if (given.empty() && definition.empty() && name != "bytes") return nullptr;
  std::unique_ptr<Tokenizer> tokenizer;
  if (definition.empty()) {
    tokenizer = make_tokenizer(given.empty() ? name : given);
  } else {
    const ErrorContext where(path.string());
    tokenizer = tokenizer_of_definition(name, definition);
  }
  if (tokenizer->fingerprint() != reader.tokenizer_fingerprint())
    fail(
        "{}: its tokens were made by tokenizer '{}' with fingerprint '{}'; {} '{}' has '{}'. "
        "Rebuild the tokens, or name the tokenizer that made them",
        path.string(), name, reader.tokenizer_fingerprint(),
        given.empty() ? "this build's" : "the given", tokenizer->name(), tokenizer->fingerprint());
  return tokenizer;
}

REGISTER_TEMPLATE(BaseInput, FlatTokensInput);

FlatTokensInput::FlatTokensInput(const HParams& p) : IndexedInput(token_stream(p)), p_(p) {
  if (p.packed && p.best_fit)
    fail(
        "input '{}': best_fit needs packed=false; packed rows are cut from the concatenated "
        "documents",
        name());
}

std::vector<std::filesystem::path> FlatTokensInput::find_files(const Infeed& infeed) const {
  std::filesystem::path path = path_or_url(p_.path.get(), fmt::format("input '{}':", name()));
  if (p_.path.get().starts_with(kRunDirectory))
    path = infeed.run_directory / p_.path.get().substr(kRunDirectory.size());
  if (is_file_pattern(path.string())) {
    std::vector<std::filesystem::path> found = matching_files(path.string());
    if (found.empty()) fail("input '{}': no file matches {}", name(), path.string());
    return found;
  }
  if (is_url(path)) return {path};
  if (!std::filesystem::exists(path))
    fail(
        "input '{}': {}: no such file; build one with 'flat_tokens build', or name another in the "
        "experiment or with --set",
        name(), path.string());
  if (std::filesystem::is_directory(path))
    fail("input '{}': {} is a directory; use a file pattern: {}", name(), path.string(),
         (path / "*.h5").string());
  return {path};
}

void FlatTokensInput::open(const Infeed& infeed) {
  for (const std::filesystem::path& path : find_files(infeed)) {
    files_.emplace_back(path, p_.split, options_of(p_, stream()));
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + files_.back().size());
    vocab_size_ = std::max(vocab_size_, files_.back().reader().vocab_size());
  }
  {
    const ErrorPrefix where(fmt::format("input '{}'", name()));
    tokenizer_ = tokenizer_of_tokens(files_[0].reader(), files_[0].path(), p_.tokenizer);
  }
  check_files();
  layout_ = std::make_unique<RowLayout>(p_.labels, tokenizer_.get());
  if (ends_.back() < 1)
    fail("{}:{}: {} tokens in {} documents are too few for a label{}", files_[0].path().string(),
         p_.split, files_[0].reader().num_tokens(), files_[0].reader().num_documents(),
         files_.size() == 1 ? "" : "; so are those of the other files");
}

// Checks that all files have one tokenizer, and only ids in its vocabulary.
void FlatTokensInput::check_files() const {
  const FlatTokensReader& first = files_[0].reader();
  for (const FlatTokensRows& file : files_) {
    const FlatTokensReader& reader = file.reader();
    if (reader.tokenizer_fingerprint() != first.tokenizer_fingerprint())
      fail(
          "input '{}': {} was made with tokenizer '{}' (fingerprint '{}'), but {} with '{}' "
          "('{}'); all files of an input must have the same tokenizer",
          name(), files_[0].path().string(), first.tokenizer_name(), first.tokenizer_fingerprint(),
          file.path().string(), reader.tokenizer_name(), reader.tokenizer_fingerprint());
    if (tokenizer_ && reader.max_token_id() >= tokenizer_->vocab_size())
      fail("input '{}': {}: token ids reach {}, but its tokenizer '{}' has {}", name(),
           file.path().string(), reader.max_token_id(), tokenizer_->name(),
           tokenizer_->vocab_size());
  }
}

std::vector<DataPart> FlatTokensInput::data_parts() const {
  const std::filesystem::path root = pattern_root(path_or_url(p_.path.get(), "path"));
  std::vector<DataPart> parts;
  for (const FlatTokensRows& file : files_)
    parts.push_back({file.path().lexically_relative(root).generic_string(),
                     file.reader().fingerprint(), file.size()});
  return parts;
}

// Samples the tokens, not the bytes of the file, which depend on the options of its build.
std::string FlatTokensInput::content_of(size_t index, ContentSample& sample) const {
  constexpr int64_t kBytes = sizeof(uint32_t);
  const FlatTokensReader& reader = files_[index].reader();
  std::vector<uint32_t> encoded;
  return sample.entry(files_[index].path().filename().string(), kBytes * reader.num_tokens(),
                      [&](int64_t offset, std::span<std::byte> bytes) {
                        encoded.resize(bytes.size() / kBytes);
                        reader.read(offset / kBytes, encoded);
                        std::ranges::copy(std::as_bytes(std::span(encoded)), bytes.begin());
                      });
}

std::string FlatTokensInput::ids_fingerprint() const {
  return files_.at(0).reader().tokenizer_fingerprint();
}

void FlatTokensInput::fill_example(int64_t epoch, int64_t index, const TokenRow& row) const {
  const auto file = std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
  const int64_t begin = file == 0 ? 0 : ends_[static_cast<size_t>(file - 1)];
  files_[static_cast<size_t>(file)].fill(epoch, index - begin, *layout_, row);
}

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/build_inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/storage/storage.h"
#include "inputs/shuffle.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Returns null for a token file.
const DocumentFormat* format_of_input(const TextFile& file, std::string_view format) {
  const bool is_auto = format == kAutoFormat;
  if (format == kTokenFormat || (is_auto && lower_extension(file.path) == ".bin")) return nullptr;
  return is_auto && file.format != nullptr ? file.format : &document_format(file.path, format);
}

// Appends the identity of the file (path, name, size, time) to `seen`.
BuildInput input_of(const TextFile& file, std::string_view format, std::string* seen) {
  const fs::path& path = file.path;
  if (is_url(path)) {
    *seen += fmt::format("{} {} {} {}\n", path.string(), file.name, file.object_bytes,
                         file.object_version);
    return {path, format_of_input(file, format), ValidationPart::kNone, file.object_bytes,
            file.name};
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    fail("{}: cannot be read: {}", path.string(), std::strerror(errno));
  BuildInput input{path, format_of_input(file, format), ValidationPart::kNone, status.st_size,
                   file.name};
  *seen += fmt::format("{} {} {} {}.{:09}\n", fs::absolute(path).lexically_normal().string(),
                       file.name, input.bytes, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  return input;
}

// Separate documents are chosen one by one, texts as whole files by a hash of their names if there
// are several, else the tail of the input.
void assign_validation_parts(const BuildInputOptions& options, std::vector<BuildInput>* inputs) {
  if (options.validation_fraction <= 0.0) return;
  const auto is_whole_text = [&](const BuildInput& input) {
    return input.format != nullptr && !input.format->has_records && !options.texts_have_separator;
  };
  const auto texts = std::ranges::count_if(*inputs, is_whole_text);
  for (BuildInput& input : *inputs) {
    const bool is_tail =
        is_whole_text(input) || (input.format == nullptr && !options.tokens_have_end_id &&
                                 !has_megatron_index(input.path, options.token_dtype));
    input.validation_part = is_tail ? ValidationPart::kTail : ValidationPart::kByDocument;
    if (texts < 2 || !is_whole_text(input)) continue;
    input.validation_part = in_validation_split(input.name, options.validation_fraction)
                                ? ValidationPart::kWhole
                                : ValidationPart::kNone;
  }
}

std::string describe_validation(const BuildInputs& built, const BuildInputOptions& options) {
  if (!options.validation.empty()) return "";
  if (options.validation_fraction <= 0.0) return ", none held out";
  const std::string share = fmt::format("{:g} %", 100.0 * options.validation_fraction);
  std::set<ValidationPart> ways;
  for (const BuildInput& input : built.inputs) ways.insert(input.validation_part);
  if (ways.size() == 1 && ways.contains(ValidationPart::kTail))
    return fmt::format(", the last {} held out", share);
  if (ways.size() == 1 && ways.contains(ValidationPart::kByDocument))
    return fmt::format(", documents of about {} held out", share);
  return fmt::format(", about {} held out", share);
}

std::string files_text(const BuildInputs& built) {
  int64_t bytes = 0;
  for (const BuildInput& input : built.inputs) bytes += input.bytes;
  const fs::path& path = built.inputs[0].path;
  const std::string first = (is_url(path) ? path : fs::absolute(path).lexically_normal()).string();
  const std::string files = built.inputs.size() == 1
                                ? first
                                : fmt::format("{} files from {} on", built.inputs.size(), first);
  return fmt::format("{} ({} bytes)", files, bytes);
}

// The beginning of the tail, at a character boundary.
size_t tail_of(const std::string& text, double fraction) {
  constexpr size_t kMostContinuing = 3;
  const auto cut = static_cast<size_t>(static_cast<double>(text.size()) * (1.0 - fraction));
  size_t end = cut;
  while (end < text.size() && end < cut + kMostContinuing &&
         (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    ++end;
  return end;
}

class TextReader final : public InputReader {
 public:
  TextReader(const BuildInput& input, const TokenBuild& build)
      : input_(input),
        fraction_(build.validation_fraction),
        documents_(open_documents(input.path, build.read, input.format->name)) {}

  bool read(const SplitSet& wanted, DocumentBatch* batch) override {
    std::optional<std::string> text = documents_->next();
    if (!text) return false;
    if (text->empty()) ++empty_;
    batch->bytes += static_cast<int64_t>(text->size());
    const int64_t number = position().document - 1;
    const auto add = [&](Split split, std::string part) {
      if (wanted[split] && !part.empty())
        batch->texts.push_back({split, std::move(part), &input_, number});
    };
    switch (input_.validation_part) {
      case ValidationPart::kNone:
        add(kTrain, *std::move(text));
        break;
      case ValidationPart::kWhole:
        add(kValidation, *std::move(text));
        break;
      case ValidationPart::kByDocument: {
        const Split split = in_validation_split(*text, fraction_) ? kValidation : kTrain;
        add(split, *std::move(text));
        break;
      }
      case ValidationPart::kTail: {
        const size_t tail = tail_of(*text, fraction_);
        add(kValidation, text->substr(tail));
        text->resize(tail);
        add(kTrain, *std::move(text));
        break;
      }
    }
    return true;
  }

  ShardPosition position() const override { return documents_->position(); }
  void seek(const ShardPosition& position) override { documents_->seek(position); }
  SkippedRecords skipped() const override { return {documents_->corrupt(), empty_}; }
  int64_t bytes_read() const override { return documents_->bytes_read(); }

 private:
  const BuildInput& input_;
  double fraction_;
  std::unique_ptr<DocumentReader> documents_;
  int64_t empty_ = 0;
};

constexpr size_t kMostDocuments = 1 << 14;  // Per batch.

}  // namespace

BuildInputs find_build_inputs(const std::vector<std::string>& paths,
                              const BuildInputOptions& options) {
  check_fraction("token build", "validation_fraction", options.validation_fraction);
  const TextFiles found = find_text_files(paths, options.format == kTokenFormat);
  if (found.files.empty()) fail("no text to build tokens from in {}", fmt::join(paths, ", "));
  return build_inputs_of(found, options);
}

BuildInputs build_inputs_of(const TextFiles& found, const BuildInputOptions& options) {
  BuildInputs built;
  built.left_out = found.left_out;
  std::string seen;
  for (const TextFile& file : found.files)
    built.inputs.push_back(input_of(file, options.format, &seen));
  if (options.validation.empty()) assign_validation_parts(options, &built.inputs);
  if (!options.validation.empty()) {
    std::set<std::string> for_training;
    for (const TextFile& file : found.files) for_training.insert(file.identity);
    const bool may_be_tokens = options.format == kTokenFormat;
    for (const TextFile& file : find_text_files(options.validation, may_be_tokens).files) {
      if (for_training.contains(file.identity))
        fail("{}: is both a training input and in --validation", file.path.string());
      built.inputs.push_back(input_of(file, options.format, &seen));
      built.inputs.back().validation_part = ValidationPart::kWhole;
    }
  }
  built.validation_note = describe_validation(built, options);
  built.splits_by_fraction = options.validation.empty() && options.validation_fraction > 0.0;
  built.files = files_text(built);
  built.fingerprint = fmt::format("{} files, {:08x}{:08x}", built.inputs.size(),
                                  crc32c(std::as_bytes(std::span(seen))),
                                  crc32c(std::as_bytes(std::span(seen)), 1));
  return built;
}

void DocumentIds::add(std::span<const int32_t> document, uint64_t mark) {
  if (document.empty()) return;
  ids.insert(ids.end(), document.begin(), document.end());
  lengths.push_back(document.size() | mark);
}

void DocumentIds::clear() {
  ids.clear();
  lengths.clear();
}

void DocumentBatch::clear() {
  texts.clear();
  for (DocumentIds& of_split : tokens) of_split.clear();
  untokenised = {};
  bytes = 0;
  end = {};
  skipped = {};
  bytes_on_disk = 0;
}

// Text inputs.

std::unique_ptr<InputReader> open_input(const BuildInput& input, const TokenBuild& build) {
  if (input.format == nullptr) return read_token_bin(open_file(input.path), input, build);
  return std::make_unique<TextReader>(input, build);
}

void UnitSource::close() {
  skipped_before_.add(reader_->skipped());
  reader_.reset();
  from_ = {};
  bytes_before_ += inputs_[static_cast<size_t>(at_)].bytes;
  ++at_;
}

bool UnitSource::next(const SplitSet& wanted, DocumentBatch* batch) {
  size_t documents = 0;
  const auto size = static_cast<int64_t>(inputs_.size());
  if (at_ == size) return false;
  while (at_ < size && batch->bytes < build_.batch_bytes && documents < kMostDocuments) {
    if (reader_ == nullptr) {
      reader_ = open_input(inputs_[static_cast<size_t>(at_)], build_);
      if (from_.offset > 0 || from_.document > 0) reader_->seek(from_);
    }
    if (reader_->read(wanted, batch)) {
      ++documents;
    } else {
      close();
    }
  }
  batch->end = {at_, reader_ == nullptr ? ShardPosition{} : reader_->position()};
  batch->skipped = skipped_before_;
  batch->bytes_on_disk = bytes_before_;
  if (reader_ != nullptr) {
    batch->skipped.add(reader_->skipped());
    batch->bytes_on_disk += reader_->bytes_read();
  }
  return true;
}

void UnitSource::seek(const UnitPosition& position, const SkippedRecords& skipped) {
  reader_.reset();
  at_ = position.input;
  from_ = position.within;
  skipped_before_ = skipped;
  bytes_before_ = 0;
  for (int64_t i = 0; i < at_; ++i) bytes_before_ += inputs_[static_cast<size_t>(i)].bytes;
}

}  // namespace tessera

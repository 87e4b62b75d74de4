// SPDX-License-Identifier: Apache-2.0
// Inputs that are text.
#include "inputs/building/input_reader.h"

#include <algorithm>

#include "inputs/held_out.h"

namespace tessera {
namespace {

// Where the held-out tail begins: not within a character.
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
  TextReader(const BuildInput& input, const InputReaderOptions& options)
      : hold_out_(input.hold_out),
        fraction_(options.validation_fraction),
        documents_(open_documents(input.path, options.read,
                                  input.kind == SourceKind::kText ? DocumentFormat::kText
                                                                  : DocumentFormat::kJsonLines)) {}

  bool read(const SplitSet& wanted, DocumentBatch* batch) override {
    std::optional<std::string> text = documents_->next();
    if (!text) return false;
    if (text->empty()) ++empty_;
    batch->bytes += static_cast<int64_t>(text->size());
    const auto add = [&](Split split, std::string part) {
      if (wanted[split] && !part.empty()) batch->texts.push_back({split, std::move(part)});
    };
    switch (hold_out_) {
      case HoldOut::kNone:
        add(kTrain, *std::move(text));
        break;
      case HoldOut::kWhole:
        add(kValidation, *std::move(text));
        break;
      case HoldOut::kByDocument: {
        const Split split = is_held_out(*text, fraction_) ? kValidation : kTrain;
        add(split, *std::move(text));
        break;
      }
      case HoldOut::kTail: {
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
  LeftOut left_out() const override { return {documents_->skipped(), empty_}; }
  int64_t bytes_read() const override { return documents_->bytes_read(); }

 private:
  HoldOut hold_out_;
  double fraction_;
  std::unique_ptr<DocumentReader> documents_;
  int64_t empty_ = 0;
};

}  // namespace

std::unique_ptr<InputReader> open_input(const BuildInput& input,
                                        const InputReaderOptions& options) {
  if (input.kind == SourceKind::kTokens)
    return read_token_bin(open_file(input.path), input, options);
  return std::make_unique<TextReader>(input, options);
}

}  // namespace tessera

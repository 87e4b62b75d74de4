// SPDX-License-Identifier: Apache-2.0
// flat_tokens inspect.
#include <utf8proc.h>

#include <algorithm>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "inputs/commands/command.h"
#include "inputs/commands/token_survey.h"
#include "inputs/flat_tokens_file.h"
#include "inputs/tokenizer.h"

namespace tessera {
namespace {

constexpr std::string_view kInspectUsage =
    R"(  flat_tokens inspect FILE [options]
      Checks every token of a flat-tokens file and tells what is in it.
      --split=NAME                this split only
      --examples=2                documents of each split to show the beginning of
      --first=0                   the number of the first of them
      --length=160                tokens of each to show
      --most_frequent=10          tokens to list with their share
      --tokenizer=FILE            that made the tokens, if the file does not carry it
)";

constexpr int64_t kMostShown = 1000000;

bool is_shown(utf8proc_int32_t point) {
  switch (utf8proc_category(point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

// What would end the line, steer the terminal or is no UTF-8 is shown as escapes.
std::string printable(std::string_view text) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t point = 0;
    const auto length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at), &point);
    const size_t size = length > 0 ? static_cast<size_t>(length) : 1;
    const std::string_view bytes = text.substr(at, size);
    if (length > 0 && is_shown(point)) {
      shown += bytes;
    } else if (bytes == "\n") {
      shown += "\\n";
    } else if (bytes == "\t") {
      shown += "\\t";
    } else {
      for (const char byte : bytes)
        shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    at += size;
  }
  return shown;
}

std::string percent(int64_t part, int64_t whole) {
  return fmt::format("{:.2f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

class Inspection {
 public:
  Inspection(const Arguments& arguments, std::string path, std::ostream& out, std::ostream& notes)
      : path_(std::move(path)),
        out_(out),
        notes_(notes),
        given_tokenizer_(arguments.text("tokenizer", "")),
        examples_(arguments.number<int64_t>("examples", 2, 0, kMostShown)),
        first_(arguments.number<int64_t>("first", 0, 0, INT64_MAX)),
        length_(arguments.number<int64_t>("length", 160, 1, kMostShown)),
        most_frequent_(arguments.number<int64_t>("most_frequent", 10, 0, kMostShown)) {}

  void show(const std::string& split) {
    const FlatTokensReader reader(path_, split);
    open_tokenizer(reader);
    const TokenSurvey survey =
        survey_tokens(reader, tokenizer_.get(), most_frequent_, fmt::format("{}:{}", path_, split));
    fmt::print(out_, "{}: {} tokens; documents: {}, of {} to {} tokens, median {}\n", split,
               reader.num_tokens(), reader.num_documents(), survey.shortest, survey.longest,
               survey.median);
    fmt::print(out_, "  vocabulary {}, {} ids in use ({}), the largest {}; tokenizer {} ({})\n",
               reader.vocab_size(), survey.distinct_ids,
               percent(survey.distinct_ids, reader.vocab_size()), reader.max_token_id(),
               printable(reader.tokenizer_name()), printable(reader.tokenizer_fingerprint()));
    if (tokenizer_ != nullptr)
      fmt::print(out_, "  {} bytes of text, {:.3f} a token\n", survey.bytes,
                 static_cast<double>(survey.bytes) / static_cast<double>(reader.num_tokens()));
    if (!reader.source().empty()) fmt::print(out_, "  from {}\n", printable(reader.source()));
    show_lengths(survey, reader.num_documents());
    show_most_frequent(survey, reader.num_tokens());
    show_examples(reader);
  }

 private:
  // Without it ids are shown as numbers; the rest of the file is worth seeing all the same.
  void open_tokenizer(const FlatTokensReader& reader) {
    tokenizer_.reset();
    const std::string& name = reader.tokenizer_name();
    try {
      const std::string definition = reader.tokenizer_definition();
      if (!given_tokenizer_.empty()) {
        tokenizer_ = make_tokenizer(given_tokenizer_);
      } else if (!definition.empty()) {
        tokenizer_ = tokenizer_of_definition(name, definition);
      } else if (name == "bytes") {
        tokenizer_ = make_tokenizer(name);
      }
      if (tokenizer_ != nullptr && tokenizer_->fingerprint() != reader.tokenizer_fingerprint())
        fail("{}: its tokens were made by tokenizer '{}' with fingerprint '{}'; {} has '{}'", path_,
             name, reader.tokenizer_fingerprint(), tokenizer_->name(), tokenizer_->fingerprint());
    } catch (const Error& error) {
      if (!given_tokenizer_.empty()) throw;
      tokenizer_.reset();
      fmt::print(notes_, "ids are shown as numbers: {}\n", error.what());
    }
  }

  std::string text_of(const std::vector<int32_t>& ids) const {
    if (tokenizer_ == nullptr) return fmt::format("{}", fmt::join(ids, " "));
    return printable(tokenizer_->decode(ids));
  }

  void show_lengths(const TokenSurvey& survey, int64_t documents) const {
    constexpr int64_t kWidest = 40;
    const int64_t most = std::max(survey.empty, *std::max_element(survey.lengths_by_size.begin(),
                                                                  survey.lengths_by_size.end()));
    const auto line = [&](const std::string& lengths, int64_t count) {
      if (count == 0) return;
      const auto width = static_cast<size_t>((count * kWidest + most - 1) / most);
      fmt::print(out_, "  {:>22} tokens  {:<{}}  {} ({})\n", lengths, std::string(width, '#'),
                 kWidest, count, percent(count, documents));
    };
    line("no", survey.empty);
    for (size_t k = 0; k < survey.lengths_by_size.size() - 1; ++k) {
      const int64_t least = int64_t{1} << k;
      line(k == 0 ? "1" : fmt::format("{} to {}", least, 2 * (least - 1) + 1),
           survey.lengths_by_size[k]);
    }
  }

  void show_most_frequent(const TokenSurvey& survey, int64_t tokens) const {
    if (survey.most_frequent.empty()) return;
    std::vector<std::string> shown;
    for (const TokenCount& one : survey.most_frequent) {
      // Special tokens have no text, and characters of several tokens none of their own.
      const std::string text = tokenizer_ == nullptr ? "" : tokenizer_->decode({one.id});
      const std::string quoted = text.empty() ? "" : fmt::format(" '{}'", printable(text));
      shown.push_back(fmt::format("{}{} {}", one.id, quoted, percent(one.count, tokens)));
    }
    fmt::print(out_, "  most frequent: {}\n", fmt::join(shown, ", "));
  }

  void show_examples(const FlatTokensReader& reader) const {
    const int64_t end =
        std::min(reader.num_documents(), first_ + std::min(examples_, INT64_MAX - first_));
    for (int64_t i = first_; i < end; ++i) {
      uint64_t ends[2];
      reader.read_starts(i, ends);
      const auto begin = static_cast<int64_t>(ends[0]);
      std::vector<uint32_t> encoded(
          static_cast<size_t>(std::min(length_, static_cast<int64_t>(ends[1]) - begin)));
      reader.read(begin, encoded);
      std::vector<int32_t> ids;
      for (const uint32_t token : encoded) ids.push_back(token_id(token));
      fmt::print(out_, "  document {}: {}\n", i, text_of(ids));
    }
  }

  std::string path_;
  std::ostream& out_;
  std::ostream& notes_;
  std::string given_tokenizer_;
  int64_t examples_;
  int64_t first_;
  int64_t length_;
  int64_t most_frequent_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

void inspect(const std::vector<std::string>& words, std::ostream& out, std::ostream& notes) {
  const Arguments arguments = parse_arguments(
      words, {"split", "examples", "first", "length", "most_frequent", "tokenizer"});
  if (arguments.paths.size() != 1)
    throw UsageError(fmt::format("inspect wants one FILE, got {}", arguments.paths.size()));
  const std::string& path = arguments.paths[0];
  Inspection inspection(arguments, path, out, notes);
  std::vector<std::string> splits = FlatTokensReader::splits(path);
  if (const std::string only = arguments.text("split", ""); !only.empty() || splits.empty())
    splits = {only};  // The reader explains what is wrong with it.
  for (const std::string& split : splits) inspection.show(split);
}

}  // namespace

Command inspect_command() { return {"inspect", std::string(kInspectUsage), inspect}; }

}  // namespace tessera

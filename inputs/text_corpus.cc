// SPDX-License-Identifier: Apache-2.0
#include "inputs/text_corpus.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <span>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/file_pattern.h"
#include "inputs/flat_tokens_file.h"
#include "inputs/permutation.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool is_left_out(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || name == "build" || name == "runs" || name == "__pycache__";
}

bool looks_like_text(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  char head[8192];
  stream.read(head, sizeof(head));
  return std::find(head, head + stream.gcount(), '\0') == head + stream.gcount();
}

// By its name: what is in it would have to be decompressed.
bool is_compressed_text(const fs::path& path) {
  static const std::set<std::string> kOuter = {".gz", ".zst"};
  static const std::set<std::string> kInner = {".txt",  ".text",  ".md",
                                               ".json", ".jsonl", ".ndjson"};
  return kOuter.contains(path.extension().string()) &&
         kInner.contains(path.stem().extension().string());
}

using FileRule = bool (*)(const fs::path& path);

void add_directory(const fs::path& directory, FileRule is_wanted, std::set<fs::path>* files) {
  std::error_code error;
  fs::path at = directory;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    at = entry->path();
    if (entry->is_symlink()) continue;
    if (is_left_out(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && is_wanted(entry->path())) {
      files->insert(entry->path());
    }
  }
  if (error)
    fail("{}: cannot read the folder: {}; name the files to read", at.string(), error.message());
}

std::string percent(double fraction) { return fmt::format("{:g} %", 100.0 * fraction); }

std::string read_document(const Document& document) {
  std::ifstream stream(document.file, std::ios::binary);
  if (!stream) fail("{}: cannot open the text file", document.file.string());
  const int64_t end =
      document.end >= 0 ? document.end : static_cast<int64_t>(fs::file_size(document.file));
  std::string text(static_cast<size_t>(std::max<int64_t>(0, end - document.begin)), '\0');
  stream.seekg(document.begin);
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.gcount() != static_cast<std::streamsize>(text.size()))
    fail("{}: cannot read bytes {} to {}", document.file.string(), document.begin, end);
  return text;
}

int64_t write_split(FlatTokensWriter& writer, const std::string& split,
                    const std::vector<Document>& documents, const Tokenizer& tokenizer,
                    int64_t max_tokens) {
  writer.begin_split(split);
  for (const Document& document : documents) {
    std::vector<int32_t> ids = tokenizer.encode(read_document(document));
    if (max_tokens >= 0) {
      const int64_t room = max_tokens - writer.split_tokens();
      if (room <= 0) break;
      if (static_cast<int64_t>(ids.size()) > room) ids.resize(static_cast<size_t>(room));
    }
    writer.add_document(ids);
  }
  return writer.split_tokens();
}

Corpus hold_out_tail(const fs::path& file, double fraction) {
  Corpus corpus;
  const auto size = static_cast<int64_t>(fs::file_size(file));
  const auto cut = static_cast<int64_t>(static_cast<double>(size) * (1.0 - fraction));
  corpus.description =
      fmt::format("{} ({} bytes), the last {} held out",
                  fs::absolute(file).lexically_normal().string(), size, percent(fraction));
  corpus.train.push_back({file, 0, cut});
  if (cut < size) corpus.validation.push_back({file, cut, size});
  return corpus;
}

// A file's place in the order in which files are held out: the same wherever the folder lies.
struct Ranked {
  uint64_t rank = 0;
  fs::path file;
  int64_t bytes = 0;
};

std::vector<Ranked> ranked_files(const std::vector<fs::path>& files, const fs::path& root) {
  std::vector<Ranked> ranked;
  for (const fs::path& file : files) {
    const std::string name = fs::relative(file, root).generic_string();
    const uint64_t rank = mix_bits(crc32c(std::as_bytes(std::span(name))), name.size());
    ranked.push_back({rank, file, static_cast<int64_t>(fs::file_size(file))});
  }
  std::sort(ranked.begin(), ranked.end(),
            [](const Ranked& a, const Ranked& b) { return a.rank < b.rank; });
  return ranked;
}

Corpus hold_out_files(const std::vector<fs::path>& files, const fs::path& root, double fraction) {
  const std::vector<Ranked> ranked = ranked_files(files, root);
  int64_t total = 0;
  for (const Ranked& one : ranked) total += one.bytes;
  Corpus corpus;
  corpus.description =
      fmt::format("{} files ({} bytes) below {}, whole files of about {} held out", files.size(),
                  total, fs::absolute(root).lexically_normal().string(), percent(fraction));
  const double wanted = fraction * static_cast<double>(total);
  int64_t held_out = 0;
  for (const Ranked& one : ranked) {
    // A file that would overshoot by more than it fills is passed over.
    const bool fits = static_cast<double>(held_out) + 0.5 * static_cast<double>(one.bytes) < wanted;
    if (fits) held_out += one.bytes;
    (fits ? corpus.validation : corpus.train).push_back({one.file, 0, -1});
  }
  const auto by_name = [](const Document& a, const Document& b) { return a.file < b.file; };
  std::sort(corpus.train.begin(), corpus.train.end(), by_name);
  std::sort(corpus.validation.begin(), corpus.validation.end(), by_name);
  return corpus;
}

std::vector<fs::path> find_files(const std::vector<std::string>& paths, FileRule is_wanted) {
  std::set<fs::path> files;
  for (const std::string& path : paths) {
    std::vector<fs::path> named = {path};
    if (!fs::exists(path)) named = matching_files(path);
    if (named.empty()) fail("{}: no such file or directory, and no pattern that matches", path);
    for (const fs::path& one : named) {
      if (fs::is_directory(one)) {
        add_directory(one, is_wanted, &files);
      } else {
        require_regular_file(one);
        files.insert(one);
      }
    }
  }
  return {files.begin(), files.end()};
}

}  // namespace

std::vector<fs::path> find_text_files(const std::vector<std::string>& paths) {
  return find_files(paths, looks_like_text);
}

std::vector<fs::path> find_corpus_files(const std::vector<std::string>& paths) {
  return find_files(paths, [](const fs::path& path) {
    return is_compressed_text(path) || looks_like_text(path);
  });
}

std::vector<fs::path> own_text_files(fs::path* root) {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error);
  while (!error && folder.has_relative_path()) {
    folder = folder.parent_path();
    if (fs::exists(folder / "core/graph/graph.h") && fs::exists(folder / "CMakeLists.txt")) {
      std::set<fs::path> files;
      add_directory(folder, looks_like_text, &files);
      static const std::set<std::string> kSuffixes = {".h", ".cc", ".md", ".py", ".cmake", ".sh"};
      std::erase_if(files, [](const fs::path& file) {
        return !kSuffixes.contains(file.extension().string());
      });
      *root = folder;
      return {files.begin(), files.end()};
    }
  }
  return {};
}

Corpus split_corpus(const std::vector<fs::path>& files, const fs::path& root, double fraction) {
  if (!(fraction >= 0.0 && fraction < 1.0))
    fail("validation_fraction is {}; expected 0 or more, and less than 1", fraction);
  if (files.empty()) fail("no text files to build tokens from");
  return files.size() == 1 ? hold_out_tail(files[0], fraction)
                           : hold_out_files(files, root, fraction);
}

FlatTokensBuilt build_flat_tokens(const Corpus& corpus, const Tokenizer& tokenizer,
                                  const fs::path& output, const FlatTokensBuildOptions& options) {
  FlatTokensWriter writer(output, tokenizer,
                          {.compression = options.compression, .source = corpus.description});
  FlatTokensBuilt built;
  built.train_tokens = write_split(writer, "train", corpus.train, tokenizer, options.max_tokens);
  if (built.train_tokens == 0) fail("{}: the corpus is empty", corpus.description);
  if (!corpus.validation.empty())
    built.validation_tokens =
        write_split(writer, "validation", corpus.validation, tokenizer, options.max_tokens);
  writer.finish();
  return built;
}

}  // namespace tessera

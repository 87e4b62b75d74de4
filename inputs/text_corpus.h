// SPDX-License-Identifier: Apache-2.0
// From text files to a flat-tokens file: which files, which part of them is held out for
// validation, and the building itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "inputs/tokenizer.h"

namespace tessera {

// Bytes [begin, end) of a file; end -1 is the file's.
struct Document {
  std::filesystem::path file;
  int64_t begin = 0;
  int64_t end = -1;
};

struct Corpus {
  std::string description;  // For people, and to tell one corpus from another.
  std::vector<Document> train;
  std::vector<Document> validation;
};

// The files that `paths` name, sorted, each once: a file, a directory (every text file below it;
// hidden names, symbolic links, files with NUL bytes and folders called build or runs are left
// out), or a pattern with * ? [ ]. Error for a path that names nothing.
std::vector<std::filesystem::path> find_text_files(const std::vector<std::string>& paths);

// The same, and of directories compressed texts and lines of JSON too (.jsonl.gz, .txt.zst, …).
std::vector<std::filesystem::path> find_corpus_files(const std::vector<std::string>& paths);

// Tessera's own sources and docs, found from where the running program lies; empty if it was
// installed without them. `root` is set to the folder they are in.
std::vector<std::filesystem::path> own_text_files(std::filesystem::path* root);

// One file: its last `fraction`, in one piece, is held out, as nanoGPT splits a text. Several:
// whole files are, chosen by a hash of their names below `root`, until they make up the fraction.
Corpus split_corpus(const std::vector<std::filesystem::path>& files,
                    const std::filesystem::path& root, double fraction);

struct FlatTokensBuildOptions {
  int64_t max_tokens = -1;  // Of each split; -1: no limit.
  int compression = 0;      // Deflate level 1-9; 0 for none.
};

struct FlatTokensBuilt {
  int64_t train_tokens = 0;
  int64_t validation_tokens = 0;
};

// Writes splits `train` and, if anything is held out, `validation`. A document is a file or part of
// one. Error if there is nothing to train on.
FlatTokensBuilt build_flat_tokens(const Corpus& corpus, const Tokenizer& tokenizer,
                                  const std::filesystem::path& output,
                                  const FlatTokensBuildOptions& options = {});

}  // namespace tessera

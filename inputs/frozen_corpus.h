// SPDX-License-Identifier: Apache-2.0
// The text of a run made into a token file of the run's own, once: what TextInput reads.
#pragma once

#include <filesystem>
#include <string>

namespace tessera {

// What a corpus is made from, apart from what the files then hold.
struct CorpusRequest {
  std::string path = "";  // File, directory or pattern; "": Tessera's own sources.
  std::string tokenizer = "bytes";
  std::string text_field = "text";
  std::string separator = "";
  double validation_fraction = 0.1;
};

// What the file says of it: a run goes on with its frozen corpus when sources change, but not with
// another corpus than it was told.
std::string request_text(const CorpusRequest& request);

// Builds `output`, whose description begins with request_text and a colon. Error for what cannot be
// read: nothing is left out.
void freeze_corpus(const CorpusRequest& request, const std::filesystem::path& output);

}  // namespace tessera

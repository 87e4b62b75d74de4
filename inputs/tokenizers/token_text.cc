// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/token_text.h"

#include <charconv>

#include "core/base/error.h"
#include "inputs/tokenizers/json_flag.h"

namespace tessera {
namespace {

constexpr size_t kLongestText = 1 << 20;

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  while (true) {
    const size_t at = text.find(from);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += to;
    text.remove_prefix(at + from.size());
  }
}

// "<0x0A>" is byte 10; -1 for anything else.
int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 && byte >= 0 ? byte : -1;
}

class DecoderReader {
 public:
  TokenDecoder run(const Json& json) {
    add(json);
    return std::move(decoder_);
  }

 private:
  void add(const Json& json) {
    if (json.is_null()) return;
    const std::string& type = json.at("type").as_string();
    if (type == "Sequence") {
      for (const Json& each : json.at("decoders").as_array()) add(each);
    } else if (type == "ByteLevel" || type == "Fuse") {
      // Tokens of bytes are joined as they are in any case.
    } else if (type == "ByteFallback") {
      decoder_.has_byte_tokens = true;
    } else if (type == "Replace") {
      const Json& from = json.at("pattern").at("String");
      if (from.as_string().empty()) fail("{} is empty", from.where());
      decoder_.replacements.emplace_back(from.as_string(), json.at("content").as_string());
    } else if (type == "Metaspace") {
      const Json& mark = json.at("replacement");
      if (mark.as_string().empty()) fail("{} is empty", mark.where());
      decoder_.replacements.emplace_back(mark.as_string(), " ");
      const Json* scheme = json.find("prepend_scheme");
      const bool prepends = scheme == nullptr ? flag_of(json, "add_prefix_space", true)
                                              : scheme->as_string() != "never";
      if (prepends) decoder_.strip_left = 1;
    } else if (type == "BPEDecoder") {
      decoder_.end_suffix = json.at("suffix").as_string();
      decoder_.strip_right = 1;
    } else if (type == "Strip") {
      add_strip(json);
    } else {
      fail(
          "{}: a decoder of type '{}' is not supported; there are: ByteLevel, ByteFallback, Fuse, "
          "Metaspace, Replace, Strip, BPEDecoder, Sequence",
          json.where(), type);
    }
  }

  void add_strip(const Json& json) {
    const std::string& content = json.at("content").as_string();
    if (content.size() != 1)
      fail("{} is '{}', expected one ASCII character", json.at("content").where(), content);
    decoder_.strip = content[0];
    decoder_.strip_left = json.at("start").as_integer();
    decoder_.strip_right = json.at("stop").as_integer();
  }

  TokenDecoder decoder_;
};

}  // namespace

std::string TokenDecoder::bytes_of(std::string_view token) const {
  if (const int byte = byte_of_token(token); has_byte_tokens && byte >= 0)
    return std::string(1, static_cast<char>(byte));
  std::string text(token);
  for (const auto& [from, to] : replacements) {
    text = replaced(text, from, to);
    if (text.size() > kLongestText)
      fail("the decoder makes more than {} bytes of the token '{}'", kLongestText, token);
  }
  if (!end_suffix.empty() && text.ends_with(end_suffix))
    text.replace(text.size() - end_suffix.size(), end_suffix.size(), " ");
  return text;
}

std::string TokenDecoder::stripped(std::string text) const {
  size_t left = 0;
  while (static_cast<int64_t>(left) < strip_left && left < text.size() && text[left] == strip)
    ++left;
  text.erase(0, left);
  for (int64_t i = 0; i < strip_right && text.ends_with(strip); ++i) text.pop_back();
  return text;
}

TokenDecoder make_token_decoder(const Json& json) { return DecoderReader().run(json); }

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "inputs/score_requests.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <span>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/storage/storage.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, RequestsInput);

namespace {

const std::vector<std::string> kMembers = {"context",          "continuation", "context_ids",
                                           "continuation_ids", "task",         "example",
                                           "is_target",        "characters"};

void check_members(const Json& line) {
  for (const auto& [name, value] : line.as_object())
    if (std::ranges::find(kMembers, name) == kMembers.end())
      fail("a request has no member '{}'{}", name, did_you_mean(name, kMembers));
}

std::vector<int32_t> ids_of(const Json& list, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (const Json& each : list.as_array()) {
    const int64_t id = each.as_integer();
    if (id < 0 || id >= vocab_size)
      fail("{} is {}, expected an id from 0 to {}", each.where(), id, vocab_size - 1);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

void read_tokens(const Json& line, const EncodeRequest& encode, int64_t vocab_size,
                 ScoreRequest* request) {
  const bool is_text = line.find("context") != nullptr || line.find("continuation") != nullptr;
  const bool is_ids = line.find("context_ids") != nullptr;
  if (is_text == is_ids)
    fail(
        "a request has {}; expected context and continuation, or context_ids and "
        "continuation_ids",
        is_text ? "text and ids" : "neither text nor ids");
  if (is_ids) {
    request->context = ids_of(line.at("context_ids"), vocab_size);
    request->continuation = ids_of(line.at("continuation_ids"), vocab_size);
    if (request->context.empty())
      fail("context_ids is empty, expected at least one id, such as that of the end of a text");
  } else if (!encode) {
    fail("a request has text, but there is no tokenizer; give context_ids and continuation_ids");
  } else if (const std::string& continuation = line.at("continuation").as_string();
             !continuation.empty()) {
    encode(line.at("context").as_string(), continuation, request);
  }
  if (request->continuation.empty())
    fail("the continuation is empty; expected at least one token to score");
}

ScoreRequest read_request(const Json& line, const EncodeRequest& encode, int64_t vocab_size,
                          int64_t max_length) {
  check_members(line);
  ScoreRequest request;
  read_tokens(line, encode, vocab_size, &request);
  if (const Json* task = line.find("task")) request.task = task->as_string();
  if (const Json* example = line.find("example")) request.example = example->as_integer();
  if (const Json* target = line.find("is_target")) request.is_target = target->as_bool();
  if (const Json* characters = line.find("characters"))
    request.characters = characters->as_integer();
  check_length(request, max_length);
  return request;
}

}  // namespace

void check_length(const ScoreRequest& request, int64_t max_length) {
  if (request.length() > max_length)
    fail(
        "context and continuation have {} tokens together, expected at most {}: the model reads {} "
        "(seq_len of its input), and the last token is only predicted",
        request.length() + 1, max_length + 1, max_length);
}

std::vector<ScoreRequest> read_score_requests(const std::filesystem::path& path,
                                              const EncodeRequest& encode, int64_t vocab_size,
                                              int64_t max_length) {
  const std::filesystem::path local = local_copy(path);
  require_regular_file(local);
  std::ifstream file(local);
  if (!file) throw NoAccess(fmt::format("{}: cannot open", path.string()));
  std::vector<ScoreRequest> requests;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    const ErrorPrefix where(fmt::format("{}:{}", path.string(), ++number));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    requests.push_back(read_request(parse_json(line, "request"), encode, vocab_size, max_length));
  }
  if (file.bad()) fail("{}: cannot read it to its end", path.string());
  if (requests.empty()) fail("{} has no requests, expected one JSON object a line", path.string());
  return requests;
}

std::shared_ptr<const std::vector<ScoreRequest>> shared_score_requests(
    const std::filesystem::path& path) {
  using Requests = const std::vector<ScoreRequest>;
  constexpr int64_t kUnbounded = std::numeric_limits<int32_t>::max();
  static std::mutex mutex;
  static std::map<std::filesystem::path, std::weak_ptr<Requests>> held;
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<Requests>& known = held[path];
  std::shared_ptr<Requests> requests = known.lock();
  if (requests == nullptr) {
    requests = std::make_shared<Requests>(read_score_requests(path, {}, kUnbounded, kUnbounded));
    known = requests;
  }
  return requests;
}

void fill_row(const ScoreRequest& request, const TokenRow& row) {
  std::vector<uint32_t> tokens;
  for (const std::vector<int32_t>* part : {&request.context, &request.continuation})
    for (const int32_t id : *part) tokens.push_back(encode_token(id, tokens.empty()));
  fill_row(RowLayout(Labels::kNextToken), tokens, row);
  std::fill_n(row.weights.begin(), request.context.size() - 1, 0.0f);
}

RequestsInput::RequestsInput(const HParams& p)
    : IndexedInput({.name = p.name,
                    .global_batch_size = p.global_batch_size.get(),
                    .seq_len = p.seq_len.get()}),
      p_(p) {
  if (p.path.empty()) fail("RequestsInput: path is empty; expected a file of requests");
}

void RequestsInput::open(const Infeed&) {
  requests_ = shared_score_requests(path_or_url(p_.path, "path"));
  uint32_t sum = 0;
  for (size_t i = 0; i < requests_->size(); ++i) {
    const ErrorPrefix where(fmt::format("{}, request {}", p_.path, i + 1));
    const ScoreRequest& request = (*requests_)[i];
    check_length(request, p_.seq_len.get());
    for (const std::vector<int32_t>* part : {&request.context, &request.continuation}) {
      vocab_size_ = std::max<int64_t>(vocab_size_, 1 + *std::ranges::max_element(*part));
      sum = crc32c(std::as_bytes(std::span(*part)), sum);
    }
  }
  fingerprint_ = fmt::format("{:08x}", sum);
}

void RequestsInput::fill_example(int64_t, int64_t index, const TokenRow& row) const {
  fill_row(requests_->at(static_cast<size_t>(index)), row);
}

std::vector<DataPart> RequestsInput::data_parts() const {
  return {{p_.path, fingerprint_, std::ssize(*requests_)}};
}

std::string RequestsInput::content_of(size_t, ContentSample&) const { return fingerprint_; }

}  // namespace tessera

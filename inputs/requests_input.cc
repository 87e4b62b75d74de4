// SPDX-License-Identifier: Apache-2.0
#include "inputs/requests_input.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/user_path.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, RequestsInput);

RequestsInput::RequestsInput(const HParams& p)
    : IndexedInput({.name = p.name,
                    .global_batch_size = p.global_batch_size.get(),
                    .seq_len = p.seq_len.get()}),
      p_(p) {
  if (p.path.empty()) fail("RequestsInput: path is empty; expected a file of requests");
}

void RequestsInput::open(const Infeed&) {
  requests_ = shared_score_requests(user_path(p_.path, "path"));
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

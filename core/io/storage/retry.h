// SPDX-License-Identifier: Apache-2.0
// Requests to stores that are sent again when a failure may be transient: no reply, a status 408,
// 429 or 5xx, or an answer that asks for it; and ranges of objects, which are read by them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/io/http.h"

namespace tessera {

// Sends what `make` returns, which is called for each attempt, because a signature has a date.
// Attempts are repeated with growing, random delays, or those that Retry-After asks for, until
// $TESSERA_STORAGE_PATIENCE seconds (300) have passed; 10 at most for a host that never answered,
// whose name may be wrong, or that fails after a request to stop. Returns the last reply. Throws
// NoAccess, whose message begins with `what`, if the host did not reply.
HttpReply send_with_retries(const std::function<HttpRequest()>& make, const std::string& what);

// Calls `attempt` until it returns true, by the rules above. It throws NoReply to be called again.
// `host` is for the rule about hosts that never answered. Returns whether it did.
bool retry(const std::function<bool(double* retry_after)>& attempt, const std::string& host,
           const std::string& what);

// Fills `bytes` from `offset` by GET requests with a range, which continue after what an
// interrupted one has brought. `make` returns a request with these headers besides its own. Returns
// the last reply; if its status is 2xx, all bytes are there.
HttpReply read_range(const std::function<HttpRequest(const HttpHeaders& range)>& make,
                     const std::string& what, int64_t offset, std::span<std::byte> bytes);

// When this process was asked to stop, which a handler of signals sets; zero: it was not.
extern std::atomic<std::chrono::steady_clock::time_point> stop_asked_at;

}  // namespace tessera

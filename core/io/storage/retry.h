// SPDX-License-Identifier: Apache-2.0
// Requests to stores that are sent again when a failure may be transient: no reply, a status 408,
// 429 or 5xx, or an answer that asks for it.
#pragma once

#include <functional>
#include <string>

#include "core/io/http.h"

namespace tessera {

// Sends what `make` returns, which is called for each attempt, because a signature has a date.
// Attempts are repeated with growing, random delays, or those that Retry-After asks for, until
// $TESSERA_STORAGE_PATIENCE seconds (300) have passed; 10 at most for a host that never answered,
// whose name may be wrong. Returns the last reply. Error that begins with `what` if there is none.
HttpReply send_with_retries(const std::function<HttpRequest()>& make, const std::string& what);

// Calls `attempt` until it returns true, by the rules above. It throws NoReply to be called again.
// `host` is for the rule about hosts that never answered. Returns whether it did.
bool retry(const std::function<bool(double* retry_after)>& attempt, const std::string& host,
           const std::string& what);

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// What runexp does in one of its modes. Constructing it finds all mistakes of configuration; run()
// does the work.
#pragma once

namespace tessera {

class BaseRun {
 public:
  virtual ~BaseRun() = default;
  // The process's exit code.
  virtual int run() = 0;
};

}  // namespace tessera

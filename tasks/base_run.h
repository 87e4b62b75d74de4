// SPDX-License-Identifier: Apache-2.0
// One run of runexp in one of its modes. The constructor finds every error of the configuration;
// run() does the work.
#pragma once

namespace tessera {

class BaseRun {
 public:
  virtual ~BaseRun() = default;
  // Returns the exit code of the process.
  virtual int run() = 0;
};

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// The tracker `mlflow`: a server of MLflow, by its REST interface. A token or password comes from
// MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD, and is written nowhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/io/http.h"
#include "core/io/json.h"
#include "tasks/task/base_tracker.h"

namespace tessera {

class MlflowTracker final : public BaseTracker {
 public:
  struct HParams {
    using Instance = MlflowTracker;
    static constexpr std::string_view kName = "mlflow";
    std::string uri;
    std::string experiment = "tessera";
    double timeout_seconds = 30.0;
    FIELDS(About(uri, "http://HOST:PORT; empty: $MLFLOW_TRACKING_URI"), experiment,
           About(timeout_seconds, "of a request", {.above = 0, .max = 3600}))
  };
  explicit MlflowTracker(const HParams& p);

  void start(const TrackedRun& run) override;
  void write(const std::vector<TrackerRecord>& records) override;
  void finish(const TrackerRecord& end) override;

 private:
  HttpReply request(std::string_view method, const std::string& path,
                    const std::string& body) const;
  // A call of the interface: `runs/create`. Error unless it succeeds.
  Json call(std::string_view method, const std::string& path, const std::string& body = "") const;
  std::string experiment_id() const;
  bool resume(const std::string& id);
  void create(const TrackedRun& run);
  void log_parameters(const TrackedRun& run) const;
  void log_metrics(const std::vector<std::string>& metrics) const;
  void put_artifact(const std::string& name, const std::string& text) const;

  HParams p_;
  std::string url_;        // ".../api/2.0/"
  std::string directory_;  // The run's.
  std::string id_;         // The run's in MLflow.
  std::string artifacts_;  // URL of its artifacts; empty: the server does not accept them.
};

extern template class HolderOf<BaseTracker, MlflowTracker::HParams>;

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/model_outputs.h"

#include <memory>

#include "core/check/run_graph.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "layers/parameter.h"
#include "tests/support/layer_trial.h"
#include "tests/support/test_device.h"

namespace tessera {

NamedValues model_outputs(const LanguageModel::HParams& p, std::string_view remat, Mode mode) {
  const Mesh mesh;
  const AxisRules rules;
  const std::unique_ptr<BaseModel> model = Template<BaseModel>(p).instantiate();
  const ParameterTable& table = model->parameters();
  Graph graph;
  ReferenceInputs inputs;
  {
    const TraceScope trace(graph, mesh, rules);
    const std::vector<Tensor> parameters = parameter_inputs(table);
    for (const Parameter& each : table.parameters()) inputs[each.path] = initial_values(each, 7);
    Features features;
    features.mode = mode;
    features.step = input("step", InputKind::kScalar, make_type(DType::kI32, {}));
    inputs["step"] = {11};
    for (const std::string name : {"ids", "labels"}) {
      features.tensors[name] = input(name, InputKind::kBatch, parse_type("i32[\"batch=2 seq=6\"]"));
      for (int i = 0; i < 12; ++i) inputs[name].push_back((i * i + 3) % 17);
    }
    const FpropScope scope(parameters, features);
    const ModelOutput result = (*model)(features);
    const Tensor loss = result.loss.sum / result.loss.weight;
    output("loss", loss);
    for (const auto& [name, metric] : result.metrics) {
      output("sum/" + name, metric.sum);
      output("weight/" + name, metric.weight);
    }
    const std::vector<Tensor> slopes = gradients(loss, parameters);
    for (size_t i = 0; i < slopes.size(); ++i)
      output("gradient/" + table.parameters()[i].path, slopes[i]);
  }
  const auto device = make_test_device(2);
  CompileOptions options;
  options.remat = parse_remat_policy(remat);
  options.verify_passes = true;
  return run_graph(graph, inputs, *device, options);
}

}  // namespace tessera

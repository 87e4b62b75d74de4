# SPDX-License-Identifier: Apache-2.0
"""Times training steps of a seqax checkout; seqax_jax.py starts this in a Python with JAX.

    python seqax_step.py --seqax=CHECKOUT --config=local_test_synthetic --mesh=4,2 --steps=20

Runs seqax's compiled training step on seqax's batches, which are loaded before the measurement
starts. Modules that seqax imports but does not use here (remote logging, Hugging Face's loader) are
replaced by empty ones if they are not installed. Prints one JSON line with the number of weights,
the tokens of a step and the compile time, then one line per step with its loss and seconds. Other
lines come from seqax.
"""
import argparse
import importlib
import json
import os
import pathlib
import sys
import time
import types

UNUSED = {"clearml": ["Task", "Logger"], "gcsfs": [], "transformers": ["AutoTokenizer"],
          "datasets": ["load_dataset"], "torch": [], "torch.utils": [],
          "torch.utils.data": ["DataLoader"]}


def replace_unused():
    """Returns the names of the replaced modules."""
    replaced = []
    for name, attributes in UNUSED.items():
        try:
            importlib.import_module(name)
        except ImportError:
            module = types.ModuleType(name)
            for attribute in attributes:
                setattr(module, attribute, type(attribute, (), {}))
            sys.modules[name] = module
            replaced.append(name)
    return replaced


def settings(checkout, name, mesh):
    import hydra
    with hydra.initialize_config_dir(str(checkout / "configs"), version_base=None):
        return hydra.compose(name, ["+paths.model_name=bench", f"mesh.d={mesh[0]}",
                                    f"mesh.t={mesh[1]}"])


def report(**values):
    print(json.dumps(values), flush=True)


def measure(train, config, steps):
    """Like main_contained of train.py, without checkpoints and profiles."""
    import jax
    from jax.experimental import mesh_utils
    jax.config.update("jax_threefry_partitionable", True)
    shape = [config.mesh.d, config.mesh.t]
    with jax.sharding.Mesh(mesh_utils.create_device_mesh(shape, jax.devices()), ("d", "t")):
        key = train.fold_in_str(jax.random.PRNGKey(config.training.seed), "init")
        state = jax.jit(train.partial(train.State.init, config.model))(key)
        loader = train.get_loader("train", config.training_data, config.training.tokens)
        batches = [loader.load(step % loader.step_count) for step in range(steps)]
        begin = time.perf_counter()
        step_of = train.training_step.lower(state, jax.numpy.uint32(0), config.model,
                                            config.training, batches[0]).compile()
        weights = sum(leaf.size for leaf in jax.tree_util.tree_leaves(state.weights))
        report(weights=weights, tokens=batches[0].targets.size,
               compile_seconds=time.perf_counter() - begin)
        for step in range(steps):
            jax.block_until_ready((state, batches[step]))
            begin = time.perf_counter()
            state, metrics = step_of(state, jax.numpy.uint32(step), batches[step])
            jax.block_until_ready((state, metrics))
            report(loss=float(metrics.loss), seconds=time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqax", type=pathlib.Path, required=True)
    parser.add_argument("--config", default="local_test_synthetic")
    parser.add_argument("--mesh", default="4,2")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    mesh = [int(size) for size in args.mesh.split(",")]
    checkout = args.seqax.resolve()
    # Before JAX is imported. seqax's env.py appends to it.
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={mesh[0] * mesh[1]}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.chdir(checkout)  # The configuration names its data relative to it.
    sys.path.insert(0, str(checkout))
    replaced = replace_unused()
    import train
    for name in replaced:  # Libraries that look for optional ones must not find the empty modules.
        del sys.modules[name]
    config = train.jax_extra.make_dataclass_from_dict(train.Config,
                                                      settings(checkout, args.config, mesh))
    measure(train, config, args.steps)


if __name__ == "__main__":
    main()

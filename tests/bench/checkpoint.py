#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writing and reading checkpoints: Tessera compared with torch.save, torch.distributed.checkpoint
and dd.

    tests/bench/checkpoint.py --python=/path/to/python-with-torch --directory=DIR
        [--build=build/release] [--layers=12] [--rounds=5] [--under="chrt -r 1"]

All write the same arrays, those of a GPT-2 with AdamW's moments in f32 (1.49 GB at 12 layers),
until the bytes are on disk (fsync); dd writes as many zeros (conv=fsync). Each then reads its own
file into existing memory. `cold` first removes the file from the page cache (posix_fadvise); `warm`
leaves it there. Before each measurement 2 GiB are filled and freed, because the host of a virtual
machine may have reclaimed free memory.

The programs are interleaved, so that other load affects all of them equally. Results are medians of
the rounds, in MB/s of wall time and in seconds of processor time (user and system, of the process
during the write or read). On a tmpfs cold and warm are the same. `--under` is a command that starts
each program, such as chrt on a shared machine. Needs `ninja bench_checkpoint`. docs/performance.md
has the results of this script.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

PEER = """
import json, os, sys, time, warnings
warnings.filterwarnings("ignore")
import torch
import torch.distributed.checkpoint as dcp
torch.set_num_threads(1)
kind, what, path, layers = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

def shapes():
    yield "embedding", (50304, 768)
    yield "position", (1024, 768)
    for i in range(layers):
        yield f"{i}.qkv", (768, 3, 12, 64)
        yield f"{i}.post", (768, 12, 64)
        yield f"{i}.up", (768, 3072)
        yield f"{i}.down", (3072, 768)
        for name, size in [("qkv.b", 2304), ("up.b", 3072)]:
            yield f"{i}.{name}", (size,)
        for name in ["post.b", "down.b", "n1.s", "n1.b", "n2.s", "n2.b"]:
            yield f"{i}.{name}", (768,)

state = {f"{slot}.{name}": torch.rand(shape) for name, shape in shapes()
         for slot in ("params", "m", "v")}
bytes_ = sum(4 * tensor.numel() for tensor in state.values())

def sync(path):
    files = [path] if os.path.isfile(path) else [os.path.join(path, n) for n in os.listdir(path)]
    for name in files:
        descriptor = os.open(name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

filled = bytearray(b"x") * (2 << 30)
del filled
wall, used = time.perf_counter(), time.process_time()
if kind == "torch.save":
    if what == "write":
        torch.save(state, path)
        sync(path)
    else:
        loaded = torch.load(path)
        for name, tensor in state.items():
            tensor.copy_(loaded[name])
elif what == "write":
    dcp.save(state, checkpoint_id=path, no_dist=True)
    sync(path)
else:
    dcp.load(state, checkpoint_id=path, no_dist=True)
print(json.dumps({"bytes": bytes_, "seconds": time.perf_counter() - wall,
                  "processor_seconds": time.process_time() - used}))
"""


def measure(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def timed(command, bytes_):
    subprocess.run([sys.executable, "-c", "bytearray(b'x') * (2 << 30)"], check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"bytes": bytes_, "seconds": seconds, "processor_seconds": used}


def forget(path):
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    for name in files:
        descriptor = os.open(name, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def contenders(args, folder):
    """Name, path, and the measurements of a write and of a read."""
    blocks = f"bs=1M count={args.megabytes}"
    under = args.under.split()
    zeros = folder / "zeros"
    yield ("dd", zeros,
           lambda: timed(under + f"dd if=/dev/zero of={zeros} {blocks} conv=fsync".split(),
                         args.megabytes << 20),
           lambda: timed(under + f"dd if={zeros} of=/dev/null bs=1M".split(),
                         args.megabytes << 20))
    bench = under + [f"{args.build}/bin/bench_checkpoint"]
    ours = folder / "tessera"
    yield ("tessera", ours, lambda: measure(bench + ["write", str(ours), f"--layers={args.layers}"]),
           lambda: measure(bench + ["read", str(ours), f"--layers={args.layers}"]))
    for kind in [] if args.python is None else ["torch.save", "dcp"]:
        path = folder / kind

        def run(what, kind=kind, path=path):
            return measure(under + [args.python, "-c", PEER, kind, what, str(path), str(args.layers)])
        yield (kind, path, lambda run=run: run("write"), lambda run=run: run("read"))


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    os.sync()  # Pending writes must not slow down the next measurement.


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="one that has torch; without it dd is the only peer")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--directory", required=True, help="on the disk in question")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--under", default="")
    args = parser.parse_args()
    args.megabytes = round((3 * 4 * (51328 * 768 + args.layers * 7_087_872)) / 2**20)
    folder = pathlib.Path(args.directory) / f"checkpoint_bench.{os.getpid()}"
    folder.mkdir(parents=True)
    results = {}
    try:
        for number in range(args.rounds):
            for name, path, write, read in contenders(args, folder):
                remove(path)
                results.setdefault((name, "write"), []).append(write())
                forget(path)
                results.setdefault((name, "cold read"), []).append(read())
                results.setdefault((name, "warm read"), []).append(read())
                remove(path)
                print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder)
    print(f"{'':12}{'':11}{'MB/s':>8}{'range':>14}{'processor s':>13}")
    for (name, what), runs in results.items():
        rates = sorted(run["bytes"] / run["seconds"] / 1e6 for run in runs)
        used = statistics.median(run["processor_seconds"] for run in runs)
        print(f"{name:12}{what:11}{statistics.median(rates):8.0f}"
              f"{f'{rates[0]:.0f}-{rates[-1]:.0f}':>14}{used:13.2f}")


if __name__ == "__main__":
    main()

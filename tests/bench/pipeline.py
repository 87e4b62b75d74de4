#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines on CPU devices compared with one device: processor time, and the trace.

    tests/bench/pipeline.py [--build=build/release] [--schedules=GPipe,OneForwardOneBackward]
        [--stages=4] [--microbatches=16] [--steps=2] [--rounds=3] [--measure=time,trace]
        [--set model_dims=256 ...]

The model is bench.Gpt2Tiny with 8 layers of width 256, so that a task takes more than 10 ms. All
runs have the same batch in the same microbatches, and one thread for each device. Losses are
compared too: different losses are an error. `--measure` names any of:

time: user and system time of the processor for each step, which is the difference between the least
    time of a run of 1 + steps steps and that of a run of 1 step, divided by `steps`. The runs of
    all schedules and of one device are interleaved, so that other load affects all of them
    equally. All threads of a run share one processor: processors that work at the same time slow
    each other through the cache and the memory that they share, and that is not work done twice.
trace: `--profile` of one step. The tasks of each stage must have the order of the schedule's table
    in the plan. Prints when each stage was idle, by cause, beside the plan; in units of the mean
    time of a forward task.

Needs `ninja runexp experiment_bench`; docs/performance.md has the results.
"""
import argparse
import gzip
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

SCHEDULES = ("GPipe", "OneForwardOneBackward", "InterleavedOneForwardOneBackward",
             "CircularPipeline", "ZeroBubbleH1")
MODEL = ("task.model.lm_tpl.stacked_transformer_tpl=Repeated", "num_layers=8", "model_dims=256")
TOLERANCE = 1e-4  # For losses: rounding.
TASK = re.compile(r"[FBIW]\d+(\.\d+)?")


def command(args, schedule, folder, *more):
    settings = [*MODEL, f"task.train.num_microbatches={args.microbatches}", *args.set]
    devices = 1
    if schedule:
        devices = args.stages
        settings += ["strategy=pipeline", f"ici_mesh_shape=[{args.stages},1,1,1]",
                     f"task.train.pipeline_schedule={schedule}"]
    return [f"{args.build}/bin/runexp", "--exp=bench.Gpt2Tiny", f"--job_log_dir={folder}",
            "--restart", f"--devices={devices}", f"--threads={devices}",
            *(f"--set={each}" for each in settings), *more]


def steps(count):
    return [f"--set=num_train_steps={count}", "--set=task.train.metrics_interval_steps=1"]


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def require_losses(name, got, expected):
    if any(abs(a - b) > TOLERANCE * abs(b) for a, b in zip(got, expected, strict=True)):
        sys.exit(f"{name} computes something else: losses {got}, expected {expected}")


def run(line):
    """The processor time of a command in seconds."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read()
    if process.returncode != 0:
        sys.exit(f"{' '.join(line)}: exit code {process.returncode}\n{text}")
    return usage.ru_utime + usage.ru_stime


def measured_run(args, schedule, folder, count):
    return run(command(args, schedule, folder, *steps(count)))


def measure_time(args, folder):
    names, counts = ["", *args.schedules], (1, 1 + args.steps)
    times = {(name, count): [] for name in names for count in counts}
    known = {}
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})  # The runs inherit it.
    for _ in range(args.rounds):
        for name, count in times:
            times[name, count].append(measured_run(args, name, folder / "time", count))
            known[name, count] = losses(folder / "time")
            require_losses(name, known[name, count], known["", count])
    os.sched_setaffinity(0, processors)
    # Other load can only add to a run's time.
    short, long = ({name: min(times[name, count]) for name in names} for count in counts)
    seconds = {name: (long[name] - short[name]) / args.steps for name in names}
    print(f"one device: {seconds['']:.2f} s of a processor per step")
    for name in args.schedules:
        print(f"{name}: {seconds[name]:.2f} s, {seconds[name] / seconds['']:.3f} of one device",
              flush=True)


def spans(trace, stages):
    """For each stage its tasks as (name, start, end) in µs, without waits at their ends."""
    events = [event for event in json.loads(gzip.open(trace).read())["traceEvents"]
              if event["ph"] == "X" and event["tid"] == 1]
    result = []
    for stage in range(stages):
        mine = [event for event in events if event["pid"] == stage + 1]
        work = [event for event in mine if "line" in event.get("args", {})
                and not event["name"].startswith("wait for ")]
        tasks = []
        for task in sorted((event for event in mine if TASK.fullmatch(event["name"])),
                           key=lambda event: event["ts"]):
            inside = [event for event in work if task["ts"] <= event["ts"] and
                      event["ts"] + event["dur"] <= task["ts"] + task["dur"]]
            if not inside:
                continue
            begin = min(event["ts"] for event in inside)
            end = max(event["ts"] + event["dur"] for event in inside)
            if tasks and tasks[-1][0] == task["name"]:  # A wait divides a task.
                begin = tasks.pop()[1]
            tasks.append((task["name"], begin, end))
        result.append(tasks)
    return result


def check_order(name, stage, tasks, planned):
    got, expected = ([task for task, _, _ in each] for each in (tasks, planned))
    if got != expected:
        sys.exit(f"{name}: stage {stage} ran {' '.join(got)}, expected {' '.join(expected)}")


def idle(tasks, begin, end):
    """Warm-up, waits between tasks, and drain."""
    between = sum(b[1] - a[2] for a, b in zip(tasks, tasks[1:]))
    return tasks[0][1] - begin, between, end - tasks[-1][2]


def measure_trace(args, folder):
    for name in args.schedules:
        here = folder / "trace"
        run(command(args, name, here, *steps(3), "--profile=2:1"))
        plan = json.loads((here / "plan.json").read_text())["pipeline"]
        stages = spans(here / "trace.json.gz", args.stages)
        for stage, tasks in enumerate(stages):
            check_order(name, stage, tasks, plan["timeline"][stage])
        begin = min(tasks[0][1] for tasks in stages)
        end = max(tasks[-1][2] for tasks in stages)
        unit = statistics.mean(b - a for tasks in stages for task, a, b in tasks if task[0] == "F")
        whole = (end - begin) * args.stages
        lost = sum(sum(idle(tasks, begin, end)) for tasks in stages) / whole
        print(f"{name}: all stages in the order of the schedule; a forward task takes "
              f"{unit / 1e3:.1f} ms; idle {lost:.1%}, planned {plan['idle_fraction']:.1%}")
        forward = plan["timeline"][0][0][2]  # Time of the first task, F0.
        last = max(tasks[-1][2] for tasks in plan["timeline"])
        for stage, tasks in enumerate(stages):
            row = [f"{label} {a / unit:5.1f} ({b / forward:4.1f})" for label, a, b in zip(
                ("warm-up", "between tasks", "drain"), idle(tasks, begin, end),
                idle(plan["timeline"][stage], 0, last))]
            print(f"  stage {stage}: {tasks[0][0]} {tasks[1][0]} .. {tasks[-1][0]}  "
                  f"{'  '.join(row)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--schedules", default=",".join(SCHEDULES))
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", default="time,trace")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    args.schedules = args.schedules.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        for what in args.measure.split(","):
            {"time": measure_time, "trace": measure_trace}[what](args, pathlib.Path(temporary))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges mutants of the source: each is refused, caught by a test, or computes the same.

    tests/mutants/judge_source.py [--count N] [--copy DIR] [--list] [NUMBER ...]

Mutants of layers, ops with their gradients, autodiff, lowering, stages, tasks, the learner and optimizers are
compiled together in a copy of the tree (by default build/mutants) and run one at a time: drawn compositions first,
then other tests. With numbers, only these of the N are judged; a whole run rewrites tests/golden/source_mutants.txt.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "mutants")]
from planted_faults import TREE, must, refresh_copy, run  # noqa: E402
from statements import HEADER, HEADER_PATH, chosen, mutants_of, with_mutants  # noqa: E402

GOLDEN = TESTS / "golden" / "source_mutants.txt"
SOURCES = ("layers/**/*.cc", "core/ops/*.cc", "core/compile/autodiff/*.cc", "core/compile/spmd/*.cc",
           "core/compile/stages/*.cc", "core/compile/schedule/accumulate.cc", "core/compile/decompose.cc",
           "tasks/task/*.cc", "tasks/task/learner/*.cc")
DRAWS = "1-22"  # Of which twenty run.
# In the order in which they run, until one fails. Slow ones only run for what the others leave.
QUICK_TESTS = ("test_core_ops", "test_core_graph", "test_tasks_task", "test_core_compile", "test_layers")
SLOW_TESTS = ("test_tasks_run", "test_composition", "test_experiments")
# One test compares messages with line numbers, which mutants do not have; Chromium reserves more than BYTES.
FILTER = '~[full]~[levels]~[slurm]~"a missing reshard*"~"a browser draws*"'
LIMIT = 600  # Seconds of a test without a change. A mutant, which may wait forever, gets three times what it took.
BYTES = 12 << 30  # A mutant may allocate without end, too.


def instrumented(mutants):
    """The text of each file that has mutants of {number: mutant}."""
    files = {HEADER_PATH: HEADER}
    for file in sorted({mutant.file for mutant in mutants.values()}):
        numbered = [(number, mutant) for number, mutant in mutants.items() if mutant.file == file]
        files[file] = with_mutants((TREE / file).read_text(), numbered)
    return files


def build(copy, count):
    """Builds with `count` mutants that compile; returns them by number."""
    found = [mutant for pattern in SOURCES for path in sorted(TREE.glob(pattern))
             for mutant in mutants_of(str(path.relative_to(TREE)), path.read_text())]
    known = copy / "build" / "changes_that_do_not_compile.txt"
    invalid = set(known.read_text().splitlines()) if known.exists() else set()
    mutants = {number: mutant for number, mutant in enumerate(chosen(found, count + count // 2))
               if mutant.what not in invalid}
    while True:
        refresh_copy(copy, instrumented(mutants))
        must(["cmake", "--preset", "release", "-DTESSERA_CUDA=OFF"], copy)
        result = run(["ninja", "-C", "build/release", "-k", "0", *QUICK_TESTS, *SLOW_TESTS, "programs"], copy)
        if result.returncode == 0:
            return dict(sorted(mutants.items())[:count])
        lines = [line for line in result.stdout.splitlines() if re.search(r"error|required from", line)]
        wrong = {int(number) for line in lines for number in re.findall(r"mutant_(\d+):", line)} & mutants.keys()
        if not wrong:
            sys.exit(result.stdout[-3000:])
        print(f"{len(wrong)} changes do not compile", file=sys.stderr, flush=True)
        invalid |= {mutants.pop(number).what for number in wrong}
        known.write_text("\n".join(sorted(invalid)))


def started(copy, number, arguments, limit):
    environment = {**os.environ, "TESSERA_SOURCE_MUTANT": str(number), "TESSERA_DRAWS": DRAWS}
    command = ["timeout", str(limit), copy / "build/release/bin" / arguments[0], *arguments[1:]]
    return subprocess.Popen(command, cwd=copy, env=environment, text=True, errors="replace",
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES)))


def outcomes(copy, number, limit):
    """For each draw: refused, failed or ran, the bits of its numbers, and a text."""
    process = started(copy, number, ["test_composition", "the outcomes of some draws"], limit)
    try:
        for line in process.stdout:
            if found := re.match(r"draw \d+ (\w+) (\w+) (.*)", line):
                yield found.groups()
        if process.wait() != 0:
            yield "failed", "", f"the program stops with {process.returncode}"
    finally:
        process.terminate()


def failure_of(copy, number, test, limit):
    """What the test prints of its failure; None if it passes."""
    with started(copy, number, [test, "--abort", FILTER], limit) as process:
        output, _ = process.communicate()
    if process.returncode == 0:
        return None
    failures = [line.strip() for line in output.splitlines() if "FAILED" in line or "rror" in line]
    return f"{test}: {failures[0] if failures else f'stops with {process.returncode}'}"


class Baseline:
    """What the tests do without a change, and how long they take; each runs when it is first asked for."""

    def __init__(self, copy):
        self.copy, self.lock, self.limits = copy, threading.Lock(), {}
        begin = time.monotonic()
        self.outcomes = list(outcomes(copy, -1, LIMIT))
        self.limit_of_draws = 20 + 3 * (time.monotonic() - begin)

    def limit(self, test):
        with self.lock:
            if test not in self.limits:
                begin = time.monotonic()
                if failure := failure_of(self.copy, -1, test, LIMIT):
                    print(f"without a change fails {failure}", file=sys.stderr, flush=True)
                    os._exit(2)
                self.limits[test] = 20 + 3 * (time.monotonic() - begin)
            return self.limits[test]


def found_by_composition(copy, number, baseline):
    """The outcome and how drawn compositions show it, or None; and whether all their numbers have the same bits."""
    same = True
    for index, (outcome, bits, text) in enumerate(outcomes(copy, number, baseline.limit_of_draws)):
        if outcome == "failed":
            return ("caught", f"composition: {text}"), False
        usual_outcome, usual_bits, _ = baseline.outcomes[index]
        if outcome != usual_outcome:
            refused = outcome == "refused"
            return (outcome, text) if refused else ("caught", "composition: what was refused runs"), False
        same = same and bits == usual_bits
    return None, same


def caught_by(tests, copy, number, baseline):
    for test in tests:
        if failure := failure_of(copy, number, test, baseline.limit(test)):
            return "caught", failure
    return None


def judged_quickly(copy, number, baseline):
    """The outcome of a mutant and its reason; or what remains if no slow test finds it."""
    verdict, same = found_by_composition(copy, number, baseline)
    remaining = ("equivalent", "") if same else ("survived", "other numbers, and every test passes")
    return verdict or caught_by(QUICK_TESTS, copy, number, baseline) or remaining


def judgements_of(mutants, copy):
    """Yields the number, outcome and reason of each mutant."""
    baseline = Baseline(copy)
    remaining = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        quick = {pool.submit(judged_quickly, copy, number, baseline): number for number in mutants}
        for done in as_completed(quick):
            if done.result()[0] in ("equivalent", "survived"):
                remaining[quick[done]] = done.result()
                print(f"{quick[done]}: left by the quick tests: {mutants[quick[done]].what}", flush=True)
            else:
                yield quick[done], *done.result()
        slow = {pool.submit(caught_by, SLOW_TESTS, copy, number, baseline): number for number in remaining}
        for done in as_completed(slow):
            yield slow[done], *(done.result() or remaining[slow[done]])


def table(judgements):
    """Counts by kind and outcome. What the drawn compositions find is apart from what other tests find."""
    columns = ("refused", "by draws", "by tests", "equivalent", "survived")
    rows = {}
    for mutant, outcome, reason in judgements:
        if outcome == "caught":
            outcome = "by draws" if reason.startswith("composition: ") else "by tests"
        for name in (mutant.kind, "all"):
            rows.setdefault(name, dict.fromkeys(columns, 0))[outcome] += 1
    lines = [f"{'kind':<20}" + "".join(f"{column:>12}" for column in (*columns, "all"))]
    for name, row in sorted(rows.items(), key=lambda each: (each[0] == "all", each[0])):
        lines.append(f"{name:<20}" + "".join(f"{count:>12}" for count in (*row.values(), sum(row.values()))))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--copy", type=Path, default=TREE / "build" / "mutants")
    parser.add_argument("--list", action="store_true", help="print the mutants, judge none")
    parser.add_argument("numbers", nargs="*", type=int)
    options = parser.parse_args()
    copy = options.copy.resolve()
    mutants = build(copy, options.count)
    if options.list:
        for number, mutant in mutants.items():
            print(f"{number} line {mutant.line}: {mutant.what}")
        return
    reasons = tomllib.loads((TESTS / "mutants" / "equivalent_sources.toml").read_text())
    judgements = []
    wanted = {number: each for number, each in mutants.items() if not options.numbers or number in options.numbers}
    for number, outcome, reason in judgements_of(wanted, copy):
        mutant = mutants[number]
        if outcome == "equivalent":
            outcome = outcome if mutant.what in reasons else "survived"
            reason = reasons.get(mutant.what, "the same bits, and tests/mutants/equivalent_sources.toml says not why")
        judgements.append((mutant, outcome, reason))
        print(f"{number} {outcome}: {mutant.what}\n    line {mutant.line}: {reason[:200]}", flush=True)
    text = table(judgements)
    print(text)
    if not options.numbers:
        GOLDEN.write_text(text)
    sys.exit(any(outcome == "survived" for _, outcome, _ in judgements))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that the tests bite: plants one fault at a time in a copy of the tree, builds, and expects a test to fail.

    tests/planted_faults.py [--build DIR] [NAME ...]

The table of faults is tests/planted_faults.toml, and docs/testing.md lists it. The copy is built in DIR (by default
build/faults of the tree), incrementally, so that a fault costs the compilation of the files it touches.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
LEFT_OUT = {"build", "runs", ".git", ".cache"}


def run(command, cwd):
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def must(command, cwd):
    result = run(command, cwd)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout[-3000:]}")


def refresh_copy(copy, changed=None):
    """Brings the copy up to date without touching files that are equal, so that builds stay incremental. `changed` has the
    text of the files, by path in the tree, that differ from the tree or are not there."""
    changed = changed or {}
    for path, text in changed.items():
        if not (copy / path).exists() or (copy / path).read_text() != text:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_text(text)
    for root, folders, files in os.walk(TREE):
        folders[:] = [f for f in folders if f not in LEFT_OUT]
        for name in files:
            source = Path(root) / name
            target = copy / source.relative_to(TREE)
            if str(source.relative_to(TREE)) in changed:
                continue
            if target.exists() and target.read_bytes() == source.read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            shutil.copymode(source, target)


def caught(fault, copy, build):
    """Plants the fault, builds and runs its test; returns the first failing line, or None if the test passed."""
    path = copy / fault["file"]
    original = path.read_text()
    if original.count(fault["old"]) != 1:
        sys.exit(f"{fault['name']}: {fault['file']} holds the text to replace {original.count(fault['old'])} times, "
                 "expected once; mend tests/planted_faults.toml")
    try:
        path.write_text(original.replace(fault["old"], fault["new"]))
        must(["cmake", "--build", build, "--target", fault["test"], *fault.get("also_build", [])], copy)
        result = run([f"{build}/bin/{fault['test']}", *fault.get("filter", [])], copy)
        if result.returncode == 0:
            return None
        failures = [line for line in result.stdout.splitlines() if "FAILED" in line or "Error" in line]
        return failures[0].strip() if failures else f"exit {result.returncode}"
    finally:
        path.write_text(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=TREE / "build" / "faults")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    faults = tomllib.loads((TREE / "tests" / "planted_faults.toml").read_text())["fault"]
    unknown = set(options.names) - {fault["name"] for fault in faults}
    if unknown:
        sys.exit(f"no fault named {', '.join(sorted(unknown))}")
    copy = options.build.resolve() / "tree"
    build = options.build.resolve() / "build"
    refresh_copy(copy)
    must(["cmake", "-S", copy, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
          "-DCMAKE_CXX_FLAGS_RELEASE=-O1"], copy)
    chosen = [fault for fault in faults if not options.names or fault["name"] in options.names]
    for test in sorted({fault["test"] for fault in chosen}):
        must(["cmake", "--build", build, "--target", test], copy)
    missed = 0
    for fault in chosen:
        failure = caught(fault, copy, build)
        missed += failure is None
        print(f"{'MISSED' if failure is None else 'caught'}  {fault['name']}: {failure or 'every test passed'}", flush=True)
    print(f"{len(chosen) - missed} passed, {missed} failed")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Plans of steps on devices that are not there, for scripts: many at a time, each made once."""
import concurrent.futures
import hashlib
import json
import pathlib
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[2]
PLACE = ("op", "path", "source", "phase", "bytes")  # What a collective and its launches share.


def hardware_file(name):
    return TREE / "hardware" / f"{name}.toml"


def hardware_figure(name, section, key):
    """A number of a hardware file, such as peak_flops.bf16."""
    in_section = False
    for line in hardware_file(name).read_text().splitlines():
        if line.startswith("["):
            in_section = line.startswith(f"[{section}]")
        elif in_section and line.split("=")[0].strip() == key:
            return float(line.split("=")[1].split("#")[0])
    sys.exit(f"{hardware_file(name)}: no {section}.{key}")


def hardware_with(name, figures, folder):
    """A copy of a hardware file with other values, such as {"efficiency.products": 0.7}."""
    def text(value):
        return f'"{value}"' if isinstance(value, str) else f"{value:.6g}"

    lines, section, missing = [], "", dict(figures)
    for line in hardware_file(name).read_text().splitlines():
        if line.startswith("["):
            section = line[1:line.index("]")]
        key = f"{section}.{line.split('=')[0].strip()}"
        lines.append(f"{line.split('=')[0]}= {text(missing.pop(key))}" if key in missing else line)
    if missing:
        sys.exit(f"{hardware_file(name)}: no {', '.join(missing)}")
    stamp = "_".join(f"{key}={text(value)}" for key, value in sorted(figures.items()))
    stamp = stamp.replace('"', "")
    copy = pathlib.Path(folder) / f"{name}_{stamp}.toml"
    copy.write_text("\n".join(lines) + "\n")
    return str(copy)


def other_programs(name, folder, figures=None):
    """A copy for plans of other programs: attention at published rates, not at our kernels'."""
    if "[attention]" not in hardware_file(name).read_text():
        return hardware_with(name, figures, folder) if figures else name
    rates = {"attention.forward": "published", "attention.gradient": "published"}
    return hardware_with(name, rates | (figures or {}), folder)


def knob(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(str(each) for each in value) + "]"
    return str(value)


def command(experiment, knobs, hardware):
    """The arguments of runexp, as a user types them."""
    return [f"--exp={experiment}", "--mode=plan", f"--hardware={hardware}",
            *(f"--set={name}={knob(value)}" for name, value in knobs.items())]


class Planner:
    """Plans are kept in `folder` and read again by the next call with the same arguments, hardware
    file, program and libraries of the program."""

    def __init__(self, runexp, folder, jobs):
        self.runexp = pathlib.Path(runexp)
        if not self.runexp.is_file():
            sys.exit(f"{runexp}: no such program; build it with 'ninja -C build/release programs', "
                     "or give another --runexp")
        libraries = (self.runexp.parent.parent / "lib").glob("**/*.so*")
        self.built = max(file.stat().st_mtime_ns for file in [self.runexp, *libraries])
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.jobs = jobs

    def plan(self, experiment, knobs, hardware):
        arguments = command(experiment, knobs, hardware)
        description = hardware_file(hardware) if "/" not in str(hardware) else hardware
        stamp = hashlib.sha256("\n".join(
            [*arguments[:2], *arguments[3:], pathlib.Path(description).read_text(),
             str(self.built)]).encode()).hexdigest()[:20]
        kept = self.folder / f"{stamp}.json"
        if not kept.exists():
            whole = self.folder / f"{stamp}.plan.json"
            ran = subprocess.run([self.runexp, *arguments, f"--output={whole}"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if ran.returncode != 0:
                sys.exit(f"{self.runexp} {' '.join(arguments)}\n{ran.stderr}")
            kept.write_text(json.dumps(summary(json.loads(whole.read_text()))))
            whole.unlink()
        return json.loads(kept.read_text())

    def plan_all(self, jobs):
        """Of (experiment, knobs, hardware), in the same order."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda job: self.plan(*job), jobs))


def summary(plan):
    """What the scripts use of plan.json. Seconds are parts of a step, by what they wait for."""
    prediction = plan["prediction"]
    seconds = {"products": 0.0, "attention": 0.0, "memory": 0.0, "ici": 0.0, "dcn": 0.0, "rest": 0.0}
    links = {tuple(each[key] for key in PLACE): each["link"] for each in plan["collectives"]}
    for launch in prediction["launches"]:
        kind = launch["limit"]
        if kind == "products" and launch["op"].startswith("attention"):
            kind = "attention"
        if kind == "links":
            kind = links.get(tuple(launch[key] for key in PLACE), "ici")
        seconds[kind if kind in seconds else "rest"] += launch["adds_seconds"]
    kept = {name: plan[name] for name in ("parameters", "devices", "tokens_per_step",
                                          "flops_per_step", "peak_bytes", "communication")}
    return kept | {"seconds": seconds, "step_seconds": prediction["step_seconds"],
                   "mfu": prediction["mfu"], "tokens_per_second": prediction["tokens_per_second"],
                   "exposed_share": prediction["exposed_share"],
                   "exposed": prediction["exposed"][:1]}

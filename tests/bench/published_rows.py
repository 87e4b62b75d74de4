#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published training speeds against predicted ones: how far the planner is right.

    tests/bench/published_rows.py [--runexp=build/release/bin/runexp] [--jobs=2] [--only=h100]
        [--write | --check [--quick]] [--plans=build/published_rows]

Plans every row of published_rows.toml. Then fits the hardware's efficiencies to the first, third, …
row of each device, or of each program on a device, so that the sum of |log(predicted / published)|
is least, and predicts the others. Prints the tables of docs/planner.md. --write replaces them
there, and the drawing; --check fails if they differ, with --quick the first predicted row of each
device without a fit. The document has only the first predicted row of each program on a device.
Plans are kept in --plans.
"""
import argparse
import math
import pathlib
import statistics
import sys
import tomllib

from planned import TREE, Planner, hardware_figure, other_programs
from plots import Plot, panels
from printed import add_printing_flags, finish, parsed, table

DOCUMENT = TREE / "docs/planner.md"
ROWS = pathlib.Path(__file__).with_suffix(".toml")
KNOBS = {"seq": "seq_len", "batch": "global_batch_size", "ici": "ici_mesh_shape",
         "dcn": "dcn_mesh_shape", "accumulate": "task.train.num_microbatches",
         "remat": "task.train.remat_policy"}
NOT_KNOBS = {"on", "model", "devices", "experiment", "attention_width", "tokens", "fp8_tokens", "mfu",
             "tflops"}
TITLES = {"h100": "H100", "a100": "A100", "tpu_v4": "TPU v4", "tpu_v5p": "TPU v5p"}
HUES = {"h100": "#3b82c4", "a100": "#d97a1e", "tpu_v4": "#3f9a4b", "tpu_v5p": "#a05fbf"}
FP8 = "8 bits"
DEVICE, COPIES, PROGRAM = "products", "products and copies", "products, for each program"
FITS = {DEVICE: ("products",), COPIES: ("products", "copies"), PROGRAM: ("products",)}
ROUNDS = 3    # Rounds of planning with fitted numbers, which change the overlap.
LEAST = 0.15  # An efficiency.
HOST = 8      # Devices.
SHOWN = 1     # Predicted rows of a program on a device, in the document.


class Row:
    def __init__(self, system, row, index, index_in_program):
        fields = {**system.get("knobs", {}), **system.get("models", {}).get(row["model"], {}), **row}
        self.system, self.fields = system, fields
        self.index, self.index_in_program = index, index_in_program  # Positions of the row.
        self.on, self.model = row["on"], row["model"]
        self.experiment = fields.get("experiment", system.get("experiment"))
        if "devices" in fields:
            within = min(HOST, fields["devices"])
            fields.setdefault("ici", [1, within, 1])
            fields.setdefault("dcn", [1, fields["devices"] // within, 1])
        self.knobs = {KNOBS.get(name, name): value for name, value in fields.items()
                      if name not in NOT_KNOBS}
        self.plans = {}  # By the fit's name; "" is the hardware file as it is.

    def fitted_on(self, fit=DEVICE):
        return (self.index_in_program if fit == PROGRAM else self.index) % 2 == 0

    def published(self):
        """Tokens per second and device."""
        plan = self.plans[""]
        if "tokens" in self.fields:
            return self.fields["tokens"]
        reached = (self.fields["tflops"] * 1e12 if "tflops" in self.fields
                   else self.fields["mfu"] / 100 * self.peak())
        if self.system["counts"] == "weights":
            return reached / (6 * plan["parameters"])
        # The plan counts half of attention's scores: those that the causal mask leaves.
        other_half = 6 * self.fields["attention_width"] * self.sequence()
        return reached / (plan["flops_per_step"] / plan["tokens_per_step"] + other_half)

    def sequence(self):
        return self.knobs.get("seq_len", 1024)  # 1024: Pax's recipes.

    def peak(self):
        return hardware_figure(self.on, "peak_flops", "bf16")

    def memory(self):
        return hardware_figure(self.on, "memory", "bytes")

    def predicted(self, fit=""):
        plan = self.plans[fit]
        return plan["tokens_per_second"] / plan["devices"]

    def ratio(self, fit=""):
        return self.predicted(fit) / self.published()

    def mfu_of(self, tokens):
        plan = self.plans[""]
        return tokens * plan["flops_per_step"] / plan["tokens_per_step"] / self.peak()


def read_rows(only):
    counted, rows = {}, []
    for system in tomllib.loads(ROWS.read_text())["system"]:
        for row in system["rows"]:
            keys = row["on"], (row["on"], system["name"])
            rows.append(Row(system, row, *(counted.get(key, 0) for key in keys)))
            for key in keys:
                counted[key] = counted.get(key, 0) + 1
    return [row for row in rows if not only or row.on in only]


def least(rows, fit, names, shares):
    """The numbers with the least sum of |log ratio| if only the time of products and copies changed,
    in inverse proportion, from the plans that were made with `shares`."""
    parts = []
    for row in rows:
        plan = row.plans[fit]
        products, copies = plan["seconds"]["products"], plan["seconds"]["memory"]
        wanted = plan["tokens_per_step"] / plan["devices"] / row.published()
        parts.append((products * shares["products"] / wanted, copies * shares["copies"] / wanted,
                      (plan["step_seconds"] - products - copies) / wanted))

    def error(products, copies):
        return sum(abs(math.log(a / products + b / copies + c)) for a, b, c in parts)

    best = (shares["products"], shares["copies"])
    for step in (0.04, 0.005):  # A coarse grid of all, then a fine one around the best.
        around = [round(best[0] / step) * step, round(best[1] / step) * step]
        reach = range(-25, 26) if step > 0.01 else range(-10, 11)
        grids = [[middle + step * i for i in reach if LEAST <= middle + step * i <= 1.0]
                 for middle in around]
        if "copies" not in names:
            grids[1] = [shares["copies"]]
        best = min((error(p, c), p, c) for p in grids[0] for c in grids[1])[1:]
    return dict(zip(("products", "copies"), best))


def fit_rows(planner, rows, fit):
    """Of one device. Returns the numbers that were fitted."""
    device, names = rows[0].on, FITS[fit]
    shares = given_shares(device)
    fitted_on = [row for row in rows if row.fitted_on(fit)]
    for row in rows:
        row.plans[fit] = row.plans[""]
    for _ in range(ROUNDS):
        before, shares = shares, least(fitted_on, fit, names, shares)
        if all(abs(shares[name] - before[name]) < 0.004 for name in shares):
            break
        plan_with(planner, device, fitted_on, fit, {name: shares[name] for name in names})
    plan_with(planner, device, rows, fit, {name: shares[name] for name in names})
    return shares


def given_shares(device):
    return {name: hardware_figure(device, "efficiency", name) for name in ("products", "copies")}


def plan_with(planner, device, rows, fit, shares):
    named = {f"efficiency.{name}": share for name, share in shares.items()}
    file = other_programs(device, planner.folder, named)
    plans = planner.plan_all([(row.experiment, row.knobs, file) for row in rows])
    for row, plan in zip(rows, plans):
        row.plans[fit] = plan


def off(ratio):
    """How far, as a factor: 1.1 is ten percent too fast or too slow."""
    return max(ratio, 1 / ratio)


def errors(rows, fit):
    away = [off(row.ratio(fit)) - 1 for row in rows]
    return f"{100 * statistics.median(away):.1f} %", f"{100 * max(away):.0f} %"


def groups_of(rows, key):
    groups = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def program(row):
    return row.on, row.system["name"]


def summary_table(rows, fits):
    lines = []
    for device, of_device in groups_of(rows, lambda row: row.on).items():
        for fit in ("", *FITS):
            shares = given_shares(device) if not fit else fits.get((device, fit))
            numbers = [f"{shares[name]:.2f}" for name in ("products", "copies")] if shares else ["", ""]
            held_out = [row for row in of_device if not row.fitted_on(fit or DEVICE)]
            used = [row for row in of_device if row.fitted_on(fit or DEVICE)]
            lines.append([TITLES[device] if not fit else "", fit or "nothing: the file's numbers",
                          *numbers, str(len(held_out)), *errors(held_out, fit), errors(used, fit)[0]])
    return table(["device", "fitted", "products", "copies", "rows predicted", "median error",
                  "worst", "median of the rows fitted on"], "llrrrrrr", lines)


def programs_table(rows, fits):
    """Medians over all rows of a program on a device, in which the kind of error shows."""
    lines = []
    for (device, name), group in groups_of(rows, program).items():
        held_out = [row for row in group if not row.fitted_on(PROGRAM)]
        lines.append([TITLES[device], name, str(len(group)),
                      *(f"{statistics.median(row.ratio(fit) for row in group):.2f}"
                        for fit in ("", DEVICE)),
                      f"{fits[device, name]['products']:.2f}", str(len(held_out)),
                      *(errors(held_out, PROGRAM) if held_out else ["", ""]),
                      str(sum(row.plans[""]["peak_bytes"] > row.memory() for row in group))])
    return table(["device", "program", "rows", "file / published", "fitted / published",
                  "products of this program", "rows predicted", "median error", "worst",
                  "plans that do not fit"], "llrrrrrrrr", lines)


def first_cells(row):
    plan = row.plans[""]
    return [TITLES[row.on], row.system["name"], row.model, str(plan["devices"]),
            f"{plan['tokens_per_step'] // row.sequence()} × {row.sequence()}",
            f"{row.published():,.0f}", f"{row.predicted():,.0f}"]


def rows_table(rows, most):
    chosen = [row for row in rows if not row.fitted_on()]
    groups = groups_of(chosen, program)
    lines = [[*first_cells(row), f"{row.predicted(DEVICE):,.0f}", f"{row.ratio(DEVICE):.2f}",
              "" if row.fitted_on(PROGRAM) else f"{row.ratio(PROGRAM):.2f}"]
             for row in chosen if row in groups[program(row)][:most]]
    return table(["device", "program", "model", "devices", "sequences × tokens", "published",
                  "predicted", "fitted", "fitted / published", "fitted to the program / published"],
                 "lllrrrrrrr", lines)


def fp8_table(planner, rows):
    """What 8-bit products gain: the quotient depends less on the program than the speeds."""
    rows = [row for row in rows if "fp8_tokens" in row.fields]
    plans = planner.plan_all([(row.experiment, {**row.knobs, "task.dtypes.matmul": "fp8"},
                               other_programs(row.on, planner.folder)) for row in rows])
    for row, plan in zip(rows, plans):
        row.plans[FP8] = plan
    lines = [[TITLES[row.on], row.system["name"], row.model, str(row.plans[""]["devices"]),
              f"{row.fields['fp8_tokens'] / row.published():.2f}",
              f"{row.predicted(FP8) / row.predicted():.2f}"] for row in rows]
    return table(["device", "program", "model", "devices", "published", "predicted"], "lllrrr", lines)


def drawing(rows):
    """Predicted over published MFU, with the files' numbers and with fitted ones."""
    parts = []
    for fit, title in (("", "the files' numbers"), (DEVICE, "fitted for each device"),
                       (PROGRAM, "fitted for each program")):
        plot = Plot(title, "published MFU, %", "predicted MFU, %", (0, 80), (0, 80), width=310,
                    height=290, ticks_x=range(0, 81, 20), ticks_y=range(0, 81, 20))
        plot.area([(0, 0), (80 / 1.1, 80), (80, 80), (80, 80 / 1.1)])
        plot.line([(0, 0), (80, 80)], "#8a8f98", width=1)
        for row in rows:
            plot.dot(100 * row.mfu_of(row.published()), 100 * row.mfu_of(row.predicted(fit)),
                     HUES[row.on], hollow=bool(fit) and row.fitted_on(fit), radius=3)
        parts.append(plot)
    legend = [(TITLES[on], HUES[on], False) for on in groups_of(rows, lambda row: row.on)]
    legend += [("fitted on", "#8a8f98", True), ("predicted", "#8a8f98", False)]
    return panels(parts, legend, "grey: at most 10 % away. MFU counts the causal half of attention.")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="devices, such as h100,a100")
    add_printing_flags(parser, "published_rows")
    args = parsed(parser)
    if args.only and (args.write or args.check):
        parser.error("--write and --check need all rows: leave out --only")
    rows = read_rows([name for name in args.only.split(",") if name])
    if args.quick:
        rows = [row for row in rows if row.index == 1]
    if not rows:
        sys.exit(f"--only={args.only}: no rows; expected some of {', '.join(TITLES)}")
    planner = Planner(args.runexp, args.plans, args.jobs)
    plans = planner.plan_all([(row.experiment, row.knobs, other_programs(row.on, planner.folder))
                              for row in rows])
    for row, plan in zip(rows, plans):
        row.plans[""] = plan
    if args.quick:
        begun = "\n".join("| " + " | ".join(first_cells(row)) + " |" for row in rows)
        finish(args, DOCUMENT, {"published rows": begun}, {}, some_lines=True)
        return
    fits = {}
    for device, of_device in groups_of(rows, lambda row: row.on).items():
        for fit in (DEVICE, COPIES):
            fits[device, fit] = fit_rows(planner, of_device, fit)
    for key, of_program in groups_of(rows, program).items():
        fits[key] = fit_rows(planner, of_program, PROGRAM)
    blocks = {"errors of published rows": summary_table(rows, fits),
              "published programs": programs_table(rows, fits),
              "published rows": rows_table(rows, SHOWN if args.write or args.check else len(rows)),
              "published gains of 8 bits": fp8_table(planner, rows)}
    finish(args, DOCUMENT, blocks,
           {TREE / "docs/images/published_rows.svg": drawing(rows)})


if __name__ == "__main__":
    main()

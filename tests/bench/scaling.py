#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans recipes on more and more devices: the tables and drawings of docs/scaling.md.

    tests/bench/scaling.py [--runexp=build/release/bin/runexp] [--jobs=2] [--write | --check [--quick]]
        [--plans=build/scaling]

--write replaces them in the document; --check fails if they differ, with --quick only the first row
of each table is planned and looked for.
"""
import argparse
import tomllib

from planned import TREE, Planner, command, hardware_figure, hardware_with, other_programs
from plots import Plot, panels
from printed import add_printing_flags, finish, parsed, table

GIB = 2**30
PARTS = {"products": "#3b82c4", "attention": "#3f9a4b", "memory": "#8a8f98", "ici": "#d97a1e",
         "dcn": "#c2413c", "rest": "#a05fbf"}
NAMES = {"products": "matrix products", "attention": "attention", "memory": "other kernels",
         "ici": "waits within a slice or host", "dcn": "waits for the network", "rest": "other"}

PLANNED, PUBLISHED = "#1f9e89", "#b0487a"

# Name, recipe, and layers × width of attention.
PAX = [("2B", "lm_cloud.Spmd2B", 18 * 3072), ("16B", "c4.Spmd16B", 36 * 6144),
       ("32B", "lm_cloud.Spmd32B", 40 * 8192), ("64B", "lm_cloud.Spmd64B", 51 * 10240),
       ("128B", "lm_cloud.Spmd128B", 71 * 12288), ("256B", "lm_cloud.Spmd256B", 80 * 16384),
       ("512B", "lm_cloud.Spmd512B", 102 * 20480), ("1024B", "lm_cloud.Spmd1024B", 142 * 24576)]
PAX_SEQUENCE = 1024
SEQAX = [("84m", "Lm84M"), ("270m", "Lm270M"), ("540m", "Lm540M"), ("1b", "Lm1B"), ("2b", "Lm2B")]
SEQAX_HOSTS = SEQAX[2:]  # That have a recipe for four hosts.

MULTISLICE = "c4_multislice.Spmd22B1xv4_128"
SLICES = (1, 2, 4, 8, 16, 32, 64)  # Numbers of slices of 64 devices.
SLICE, MODEL_DIMS = 64, 6144
FIXED_BATCH = 64 * 64                       # Sequences: one for each of 4096 devices.
MDL_SIZES = (1, 2, 4, 8)
WAYS = {"replicas": "replicas over the network, 16 sequences for each device",
        "fixed": "the same, 4096 sequences in all",
        "sharded": "weights over all devices, 16 sequences for each"}
TABLES = ("replicas", "fixed")  # The ways that are drawn.
WAY_HUES = {"replicas": "#1f9e89", "fixed": "#b0487a", "sharded": "#9a7b3c"}


def published_rows():
    """MFU by recipe, and MaxText's TFLOP/s of a device for 22B by slices."""
    mfu, tflops = {}, {}
    rows = tomllib.loads((TREE / "tests/bench/published_rows.toml").read_text())
    for system in rows["system"]:
        for row in system["rows"]:
            if "mfu" in row:
                mfu[row["experiment"]] = row["mfu"]
            if system["name"] == "MaxText on TPU v4" and row["model"] == "22B":
                tflops[row.get("dcn", [1])[0]] = row["tflops"]
    return mfu, tflops


MFU, MAXTEXT = published_rows()


def waits(plan):
    """Where kernels wait for communication, in percent of the step."""
    return [f"{100 * plan['seconds'][link] / plan['step_seconds']:.1f}" for link in ("ici", "dcn")]


def gib(plan):
    return f"{plan['peak_bytes'] / GIB:.1f}"


def seconds(plan):
    return f"{plan['step_seconds']:.2f}" if plan["step_seconds"] >= 1 else f"{plan['step_seconds']:.3f}"


def whole_attention_mfu(plan, width):
    """PaLM's: all of attention's square of scores, of which the plan counts half."""
    flops = plan["flops_per_step"] / plan["tokens_per_step"] + 6 * width * PAX_SEQUENCE
    rate = plan["tokens_per_second"] / plan["devices"]
    return 100 * flops * rate / hardware_figure("tpu_v4", "peak_flops", "bf16")


def weights_mfu(plan):
    """seqax's: 6 FLOPs for each weight and token, with embeddings, without attention."""
    rate = plan["tokens_per_second"] / plan["devices"]
    return 100 * 6 * plan["parameters"] * rate / hardware_figure("a100", "peak_flops", "bf16")


def published_text(mfu):
    return f"{mfu:.1f}" if mfu else ""


def ratio_text(planned, published):
    return f"{planned / published:.2f}" if published else ""


def pax_jobs(hardware):
    return [(recipe, {"data": "synthetic"} if recipe.startswith("c4.") else {}, hardware)
            for _, recipe, _ in PAX]


def three_axes(folder):
    """TPU v4 with the links of all axes of its torus for each collective."""
    one = hardware_figure("tpu_v4", "link", "bandwidth")
    return hardware_with("tpu_v4", {"link.bandwidth": 3 * one}, folder)


def pax_table(plans, plans_of_three):
    lines = []
    for (_, recipe, width), plan, three in zip(PAX, plans, plans_of_three):
        published = MFU.get(recipe)
        mfu, mfu_of_three = (whole_attention_mfu(each, width) for each in (plan, three))
        lines.append([f"`{recipe}`", str(plan["devices"]),
                      f"{plan['tokens_per_step'] // PAX_SEQUENCE}", seconds(plan), f"{mfu:.1f}",
                      published_text(published), ratio_text(mfu, published), waits(plan)[0],
                      f"{mfu_of_three:.1f}", ratio_text(mfu_of_three, published), gib(plan)])
    return table(["recipe", "devices", "sequences of 1024", "step, s", "planned MFU", "published MFU",
                  "planned / published", "waits for links, %", "planned MFU, three axes",
                  "three axes / published", "GiB of 32"], "lrrrrrrrrrr", lines)


def parts_plot(title, plans, names, x_title):
    """Stacked shares of the step."""
    count = len(plans)
    plot = Plot(title, x_title, "share of the step, %", (-0.6, count - 0.4), (0, 100),
                ticks_x=list(enumerate(names)), ticks_y=range(0, 101, 20))
    for i, plan in enumerate(plans):
        plot.bar(i, [(100 * plan["seconds"][part] / plan["step_seconds"], colour)
                     for part, colour in PARTS.items()], 11)
    return plot


def parts_legend(plans):
    return [(NAMES[part], colour, False) for part, colour in PARTS.items()
            if any(plan["seconds"][part] / plan["step_seconds"] > 0.005 for plan in plans)]


def pax_drawing(plans, plans_of_three):
    names = [name for name, *_ in PAX]
    ticks = [(i, name) for i, name in enumerate(names)]
    plot = Plot("weak scaling on TPU v4", "weights; 4 to 2048 devices", "MFU, %",
                (-0.6, len(PAX) - 0.4), (0, 70), ticks_x=ticks, ticks_y=range(0, 71, 10))
    planned, of_three = ([(i, whole_attention_mfu(plan, row[2]))
                          for i, (row, plan) in enumerate(zip(PAX, some))]
                         for some in (plans, plans_of_three))
    published = [(i, MFU[recipe]) for i, (_, recipe, _) in enumerate(PAX) if recipe in MFU]
    for points, colour, dashes in ((of_three, PLANNED, "5 4"), (planned, PLANNED, ""),
                                   (published, PUBLISHED, "")):
        plot.line(points, colour, dashes=dashes)
        for point in points:
            plot.dot(*point, colour, hollow=bool(dashes))
    legend = [("planned MFU", PLANNED, False), ("with three axes, dashed", PLANNED, True),
              ("published MFU", PUBLISHED, False)]
    return panels([plot, parts_plot("planned: where the step goes", plans, names, "weights")],
                  legend, rows=[parts_legend(plans)])


def seqax_recipes(hosts):
    if hosts == 1:
        return [f"seqax.A100x8{name}" for _, name in SEQAX]
    return [f"seqax.A100x8x{hosts}{name}" for _, name in SEQAX_HOSTS]


def seqax_jobs(hardware):
    knobs = {"data": "synthetic"}
    return [(recipe, knobs, hardware) for recipe in seqax_recipes(1) + seqax_recipes(4)]


def seqax_table(plans):
    lines = []
    for recipe, plan in zip(seqax_recipes(1) + seqax_recipes(4), plans):
        mfu, published = weights_mfu(plan), MFU.get(recipe)
        published_step = plan["step_seconds"] * mfu / published if published else 0
        lines.append([f"`{recipe}`", str(plan["devices"]), f"{mfu:.1f}",
                      published_text(published), ratio_text(mfu, published), seconds(plan),
                      *([f"{published_step:.3f}", f"{published_step - plan['step_seconds']:.3f}"]
                        if published else ["", ""]), *waits(plan), gib(plan)])
    return table(["recipe", "devices", "planned MFU", "published MFU", "planned / published",
                  "step, s", "published", "longer by", "waits within a host, %",
                  "for the network, %", "GiB of 74.5"], "lrrrrrrrrrr", lines)


def seqax_drawing(plans):
    names = [name for name, _ in SEQAX]
    plot = Plot("seqax on 8 and 32 A100", "model", "MFU, %", (-0.6, len(SEQAX) - 0.4), (0, 80),
                ticks_x=list(enumerate(names)), ticks_y=range(0, 81, 20))
    drawn = ((SEQAX, 1, plans[:len(SEQAX)], ""), (SEQAX_HOSTS, 4, plans[len(SEQAX):], "5 4"))
    for rows, hosts, some, dashes in drawn:
        at = [names.index(name) for name, _ in rows]
        planned = [(i, weights_mfu(plan)) for i, plan in zip(at, some)]
        published = [(i, MFU[recipe]) for i, recipe in zip(at, seqax_recipes(hosts)) if recipe in MFU]
        for points, colour in ((planned, PLANNED), (published, PUBLISHED)):
            plot.line(points, colour, dashes=dashes)
            for point in points:
                plot.dot(*point, colour, hollow=bool(dashes))
    legend = [("planned MFU", PLANNED, False), ("published MFU", PUBLISHED, False),
              ("4 hosts, dashed", "#8a8f98", True)]
    shares = parts_plot("planned: where the step goes, 8 devices", plans[:len(SEQAX)], names, "model")
    return panels([plot, shares], legend, rows=[parts_legend(plans[:len(SEQAX)])])


def multislice_knobs(way, slices):
    knobs = {"data": "synthetic"}
    if way == "sharded":
        return knobs | {"dcn_mesh_shape": [1, slices, 1]}
    if way == "fixed":
        knobs["percore_batch_size"] = FIXED_BATCH // (SLICE * slices)
    return knobs | {"dcn_mesh_shape": [slices, 1, 1]}


def multislice_cases(way):
    if way == "fixed":  # From 16 sequences of a device, as in the recipe.
        return [slices for slices in SLICES if FIXED_BATCH // (SLICE * slices) <= 16]
    if way == "sharded":  # The width, 6144, cannot be split by 4096.
        return [slices for slices in SLICES if MODEL_DIMS % (SLICE * slices) == 0]
    return SLICES


def multislice_jobs(way):
    return [(MULTISLICE, multislice_knobs(way, slices), "tpu_v4") for slices in multislice_cases(way)]


def multislice_table(plans, way):
    lines, first = [], plans[0]
    for slices, plan in zip(multislice_cases(way), plans):
        rate = plan["tokens_per_second"] / plan["devices"]
        kept = rate / (first["tokens_per_second"] / first["devices"])
        lines.append([str(slices), str(plan["devices"]),
                      str(plan["tokens_per_step"] // plan["devices"] // PAX_SEQUENCE),
                      seconds(plan), f"{100 * plan['mfu']:.1f}", f"{100 * kept:.1f}",
                      f"{100 * MAXTEXT[slices] / MAXTEXT[1]:.1f}" if slices in MAXTEXT else "",
                      *waits(plan), gib(plan)])
    titles = ["slices", "devices", "sequences of a device", "step, s", "MFU", "of the first row, %",
              "MaxText, of one slice, %", "waits within slices, %", "for the network, %",
              "GiB of 32"]
    sides = "r" * len(titles)
    if way != "replicas":
        drop = titles.index("MaxText, of one slice, %")
        titles.pop(drop)
        sides = sides[:drop] + sides[drop + 1:]
        lines = [line[:drop] + line[drop + 1:] for line in lines]
    return table(titles, sides, lines)


def multislice_drawing(plans):
    plot = Plot("22B on slices of 64 TPU v4", "devices", "MFU, %", (50, 5200), (0, 60),
                ticks_x=[64, 256, 1024, 4096], ticks_y=range(0, 61, 10), log_x=True)
    for way, of_way in plans.items():
        points = [(plan["devices"], 100 * plan["mfu"]) for plan in of_way]
        plot.line(points, WAY_HUES[way])
        for point in points:
            plot.dot(*point, WAY_HUES[way])
    names = [str(FIXED_BATCH // plan["devices"]) for plan in plans["fixed"]]
    shares = parts_plot("4096 sequences: where the step goes", plans["fixed"], names,
                        "sequences of a device; 256 to 4096 devices")
    legends = [[(WAYS[way], WAY_HUES[way], False)] for way in WAYS]
    return panels([plot, shares], legends[0], rows=[*legends[1:], parts_legend(plans["fixed"])])


def mesh_jobs():
    """The last row of the fixed batch with layers split over mdl."""
    knobs = multislice_knobs("fixed", SLICES[-1])
    return [(MULTISLICE, knobs | {"ici_mesh_shape": [1, SLICE // mdl, mdl]}, "tpu_v4")
            for mdl in MDL_SIZES]


def mesh_table(plans):
    lines = [[f"1×{SLICE // mdl}×{mdl}", seconds(plan), f"{100 * plan['mfu']:.1f}", *waits(plan),
              gib(plan)] for mdl, plan in zip(MDL_SIZES, plans)]
    return table(["mesh of a slice, replica × data × mdl", "step, s", "MFU", "waits within slices, %",
                  "for the network, %", "GiB of 32"], "lrrrrr", lines)


def command_lines(jobs):
    """One for each row: what a user types for it."""
    return "\n".join("./runexp " + " ".join(command(*job)).replace("--set=", "--set ")
                     for job in jobs)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", action="store_true", help="print a command for each row")
    add_printing_flags(parser, "scaling")
    args = parsed(parser)
    planner = Planner(args.runexp, args.plans, args.jobs)
    groups = {"pax": pax_jobs("tpu_v4"), "three": pax_jobs(three_axes(planner.folder)),
              "seqax": seqax_jobs(other_programs("a100", planner.folder)),
              "meshes": mesh_jobs()}
    groups |= {way: multislice_jobs(way) for way in WAYS}
    if args.commands:
        print("\n".join(command_lines(jobs) for jobs in groups.values()))
        return
    if args.quick:
        groups = {name: jobs[:1] for name, jobs in groups.items()}
    made = planner.plan_all([job for jobs in groups.values() for job in jobs])
    plans = {}
    for name, jobs in groups.items():
        plans[name], made = made[:len(jobs)], made[len(jobs):]
    blocks = {"weak scaling": pax_table(plans["pax"], plans["three"]),
              "seqax": seqax_table(plans["seqax"]), "meshes": mesh_table(plans["meshes"])}
    blocks |= {f"multislice, {way}": multislice_table(plans[way], way) for way in TABLES}
    images = TREE / "docs/images"
    drawings = {} if args.quick else {
        images / "scaling_weak.svg": pax_drawing(plans["pax"], plans["three"]),
        images / "scaling_seqax.svg": seqax_drawing(plans["seqax"]),
        images / "scaling_multislice.svg": multislice_drawing({way: plans[way] for way in WAYS})}
    finish(args, TREE / "docs/scaling.md", blocks, drawings, some_lines=args.quick)


if __name__ == "__main__":
    main()

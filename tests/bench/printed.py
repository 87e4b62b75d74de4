# SPDX-License-Identifier: Apache-2.0
"""Tables of a document that a script prints: written into it, or compared with it.

In the document a table stands between `<!-- NAME, by tests/bench/SCRIPT.py -->` and `<!-- end -->`.
"""
import pathlib
import re
import sys

from planned import TREE


def add_printing_flags(parser, name):
    parser.add_argument("--runexp", default=TREE / "build/release/bin/runexp", type=pathlib.Path)
    parser.add_argument("--plans", default=TREE / "build" / name, type=pathlib.Path)
    parser.add_argument("--jobs", default=2, type=int, help="plans at a time, 1 to 64")
    parser.add_argument("--quick", action="store_true", help="a few rows, for --check")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="into the document")
    what.add_argument("--check", action="store_true", help="against the document")


def parsed(parser):
    args = parser.parse_args()
    if not 1 <= args.jobs <= 64:
        parser.error(f"--jobs={args.jobs}: expected 1 to 64")
    if args.write and args.quick:
        parser.error("--write needs all rows: leave out --quick")
    return args


def table(titles, sides, lines):
    """A table of Markdown; sides is 'l' or 'r' for each column."""
    rule = ["---" if side == "l" else "---:" for side in sides]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [titles, rule, *lines])


def pattern(name):
    return re.compile(rf"(<!-- {re.escape(name)}, by [^>]*-->\n)(?:(?!<!--).*\n)*(<!-- end -->)")


def finish(args, document, blocks, drawings, some_lines=False):
    """Prints, writes or checks. `blocks` are tables by name, `drawings` are SVGs by path. With
    `some_lines` the tables have only some lines, or their first cells, which are looked for."""
    if not (args.write or args.check):
        print("\n\n".join(f"{name}\n\n{block}" for name, block in blocks.items()))
        return
    text = document.read_text()
    wrong, changed = [], text
    for name, block in blocks.items():
        found = pattern(name).search(text)
        if not found:
            sys.exit(f"{document}: no '<!-- {name}, by … -->' before a table")
        there = found[0].splitlines()
        wrong += [f"{document}, {name}: expected the line\n{line}" for line in block.splitlines()
                  if not any(each.startswith(line) for each in there)]
        if not some_lines and found[0] != found[1] + block + "\n" + found[2]:
            wrong.append(f"{document}, {name}: other lines than expected")
        changed = changed.replace(found[0], found[1] + block + "\n" + found[2])
    if args.write:
        document.write_text(changed)
        for path, drawn in drawings.items():
            path.write_text(drawn)
        return
    wrong += [f"{path}: differs" for path, drawn in drawings.items()
              if not path.exists() or path.read_text() != drawn]
    if wrong:
        sys.exit("\n".join(wrong) + f"\n{sys.argv[0]} --write writes them again")

# SPDX-License-Identifier: Apache-2.0
"""Mutants of C++ source: one statement of a function with one change, selected when the program runs.

All mutants of a file are compiled together; TESSERA_SOURCE_MUTANT=7 selects number 7. The sources are
formatted by clang-format, so that lines tell where statements begin.
"""

import hashlib
import re
from dataclasses import dataclass

HEADER_PATH = "core/base/source_mutant.h"
HEADER = """#pragma once
#include <cstdlib>
namespace tessera {
inline bool is_mutant(int number) {
  static const int chosen = [] {
    const char* const text = std::getenv("TESSERA_SOURCE_MUTANT");
    return text != nullptr ? std::atoi(text) : -1;
  }();
  return number == chosen;
}
}  // namespace tessera
"""

# Texts that are replaced, by kind.
SWAPPED = {
    "condition": {" && ": " || ", " || ": " && ", " == ": " != ", " != ": " == ", " < ": " <= ", " > ": " >= "},
    "arithmetic": {" + ": " - ", " - ": " + ", " * ": " / ", " / ": " * "},
    "operand": {".front()": ".back()", ".back()": ".front()", "[0]": "[1]", "[1]": "[0]", "[2]": "[1]",
                "begin()": "begin() + 1", "subspan(1)": "subspan(0)"},
    "constant": {"0.0": "1.0", "1.0": "2.0", "true": "false", "false": "true"},
    "function": {"reduce_sum(": "reduce_mean(", "reduce_mean(": "reduce_sum(", "reduce_max(": "reduce_sum(",
                 "minimum(": "maximum(", "maximum(": "minimum(", "std::min(": "std::max(",
                 "std::max(": "std::min(", "::kSum": "::kMax", "::kMax": "::kSum"},
}
# Calls that are replaced by their first argument.
DROPPED = ("reshard", "reduced", "place", "whole_along", "shared_heads", "divisible_heads", "cast", "as_dtype",
           "reduce_sum", "reduce_mean", "square", "sqrt", "rsqrt", "exp", "tanh", "softplus", "axis_last",
           "in_order_of", "where", "minimum", "maximum", "stop_gradient", "match", "mesh_union",
           "with_whole_axis", "rename", "attention_mask", "dropout", "negate", "sign", "abs")
DROPPED_CALL = re.compile(r"(?<![\w.:>])(" + "|".join(DROPPED) + r")\(")

# Statements and functions on which no number depends: messages, checks of arguments, names and costs.
NOT_NUMBERS = re.compile(
    r"\b(fail|refuse\w*|CHECK|format|check\w*|describe|text|named|site|SiteScope|ErrorPrefix|reserve)\(|kSite")
NOT_NUMBERS_IN = re.compile(r"\b\w*(flops|cost|bytes|text|hint|describe|check|name|message|lint|refuse|explain)\w*\(")

DECLARATION = re.compile(
    r"^(?P<type>(?:const )?(?:std::)?[A-Za-z_]\w*(?:::\w+)*(?:<[^;=()]*>)?[&*]?) (?P<name>\w+) = ")
# Other statements that can stand in the branch of an if, since they declare nothing.
COMMAND = re.compile(r"return\b|(if|for|while) \(|[\w.\->\[\]*:]+(\(| [+\-*/|]?= )")
BLOCK_OF_IF = re.compile(r"if \([^;{]*\) \{")


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    begin: int  # Where its statement is in the text of the file.
    end: int
    kind: str
    old: str
    new: str

    @property
    def what(self):
        """The change without its surroundings, which names it for as long as its statement stays as it is."""
        old, new = (re.sub(r"\s+", " ", text) for text in (self.old, self.new))
        return f"{self.file}: {self.kind}: {old} => {new}"

    @property
    def rank(self):
        return hashlib.sha1(self.what.encode()).hexdigest()


def masked(text):
    """The text with the contents of strings and comments as underscores, of the same length."""
    pattern = r'//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    return re.sub(pattern, lambda found: found[0][0] + "_" * (len(found[0]) - 2) + found[0][-1], text)


def depth_change(character):
    return (character in "([{") - (character in ")]}")


def closing(mask, opening):
    """Where the bracket at `opening` is closed."""
    depth = 0
    for place in range(opening, len(mask)):
        depth += depth_change(mask[place])
        if depth == 0:
            return place
    return len(mask)


def end_of_argument(mask, begin, end):
    depth = 0
    for place in range(begin, end):
        if mask[place] == "," and depth == 0:
            return place
        depth += depth_change(mask[place])
    return end


def end_of_statement(mask, begin):
    """Behind the semicolon of the statement, or the brace of an if; None if it is another block or ends elsewhere."""
    place = begin
    while place < len(mask):
        if mask.startswith("{\n", place):
            return place + 1 if BLOCK_OF_IF.fullmatch(mask[begin:place + 1]) else None
        if mask[place] in "([{":
            place = closing(mask, place)
        elif mask[place] in ")]}":
            return None
        elif mask[place] == ";":
            return place + 1
        place += 1
    return None


def statements(mask):
    """The begin, end and line of each statement in functions."""
    before, function, offset = ";", "", 0
    for number, line in enumerate(mask.split("\n"), 1):
        code = line.strip()
        if line and not line[0].isspace() and "(" in line:
            function = line
        if before[-1] in ";{}" and line.startswith("  ") and code and code[0] not in "}/.:?+-*&|<":
            begin = offset + len(line) - len(line.lstrip())
            end = end_of_statement(mask, begin)
            if end is not None and not NOT_NUMBERS_IN.search(function):
                yield begin, end, number
        if code and not code.startswith("//"):
            before = code
        offset += len(line) + 1


def swaps(old, mask):
    for kind, texts in SWAPPED.items():
        for text, other in texts.items():
            pattern = (r"\b" if text[0].isalnum() else "") + re.escape(text) + (r"(?!\d)" if kind == "constant" else "")
            for found in re.finditer(pattern, mask):
                yield kind, old[:found.start()] + other + old[found.end():]


def dropped_calls(old, mask):
    for found in DROPPED_CALL.finditer(mask):
        begin, end = found.end(), closing(mask, found.end() - 1)
        argument = old[begin:end_of_argument(mask, begin, end)]
        yield "dropped call", f"{old[:found.start()]}({argument}){old[end + 1:]}"


def changes(old, mask):
    """Pairs of a kind and the changed statement."""
    if mask.endswith("{"):
        yield "condition", f"if (!({old[4:-3]})) {{"
        return
    yield from swaps(old, mask)
    yield from dropped_calls(old, mask)
    if mask.startswith("if (") and ";" not in mask[:closing(mask, 3)]:
        end = closing(mask, 3)
        yield "condition", f"if (!({old[4:end]})){old[end + 1:]}"
    if not DECLARATION.match(mask) and not re.match(r"(return|if|for|while)\b", mask):
        yield "deleted statement", ""


def mutants_of(path, text):
    """All mutants of a file."""
    mask = masked(text)
    for begin, end, line in statements(mask):
        old, code = text[begin:end], mask[begin:end]
        if NOT_NUMBERS.search(code) or not (DECLARATION.match(code) or COMMAND.match(code)):
            continue
        if re.match(r"(using|static|constexpr)\b", code) or re.match(r"\s*else\b", mask[end:]):
            continue
        for kind, new in changes(old, code):
            yield Mutant(path, line, begin, end, kind, old, new)


def chosen(mutants, most):
    """At most one mutant of a statement and `most` in all, by hashes of their texts, each kind of a folder in turn."""
    by_statement = {}
    for mutant in sorted(mutants, key=lambda each: each.rank):
        by_statement.setdefault((mutant.file, mutant.begin), mutant)
    groups = {}
    for mutant in by_statement.values():
        groups.setdefault((mutant.file.rsplit("/", 1)[0], mutant.kind), []).append(mutant)
    result, turn = [], 0
    while len(result) < most and any(turn < len(group) for group in groups.values()):
        result += [group[turn] for _, group in sorted(groups.items()) if turn < len(group)]
        turn += 1
    return result[:most]


def switched(number, mutant):
    """The statement and its mutant, one of which is selected when it runs."""
    selected = f"::tessera::is_mutant({number})"
    if mutant.old.endswith("{"):
        return f"if (static_cast<bool>({mutant.old[4:-3]}) != {selected}) {{"
    declared = DECLARATION.match(mutant.old)
    if not declared:
        return f"if ({selected}) {{ {mutant.new or ';'} }} else {{ {mutant.old} }}"
    new, old = (text[declared.end():-1] for text in (mutant.new, mutant.old))
    bare = declared["type"].removeprefix("const ") if old.startswith("{") else ""
    return f"{declared[0]}{selected} ? ({bare}{new}) : ({bare}{old});"


def with_mutants(text, numbered):
    """The text of a file with its mutants, (number, mutant) each. A compile error in one has its number as its file."""
    for number, mutant in sorted(numbered, key=lambda each: -each[1].begin):
        last = mutant.line + mutant.old.count("\n")
        text = (f'{text[:mutant.begin]}\n#line 1 "mutant_{number}"\n{switched(number, mutant)}\n'
                f'#line {last} "{mutant.file}"\n{text[mutant.end:]}')
    return f'#include "{HEADER_PATH}"\n#line 1 "{numbered[0][1].file}"\n{text}'

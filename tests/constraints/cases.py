"""Constraints with texts that they admit, do not admit, and admit the beginning of."""

from __future__ import annotations

from dataclasses import dataclass

from rel_batch.constraints import (
    Chars,
    Constraint,
    OneOf,
    Repeat,
    Rule,
    Seq,
    Text,
    optional,
    separated,
    texts,
)
from rel_batch.constraints.smiles_grammar import SMILES, SMILES_RULES

# Names that break a notation which escapes one character too few.
HOSTILE_NAMES = (
    "a b", " lead", "trail ", 'q"z', "[x]", "(y)", "a,b", "a|b", "new\nline", "tab\tx", "é", "日本",
    "😀", "\\back", "^car", "a-b", "/sl/", "~t", "&&", "#h", "<x>", "{1,2}", "$", "'q'", "\x01",
    "\u2028", "\x7f", "%x", "::=", "`", "\r", "\x0b", "\x85", "\xa0", "a", "a.", "a*", "\\n", "//",
    "# rel-batch", "日本語", "a\u0301",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    constraint: Constraint
    whole: tuple[str, ...]
    prefix: tuple[str, ...]
    dead: tuple[str, ...]


_taxa = separated(texts(("1", "12", "2")), ", ", 1, 3)
_smiles_tag = Seq((Text("<smiles>"), SMILES, Text("</smiles>")))
_a_or_ab = (Text("ab"), Text("a"))
_nested = Constraint(
    "syntax",
    Rule("a b"),
    (
        (
            "a b",
            Seq((Text("("), Repeat(OneOf((Rule("a b"), *_a_or_ab)), 0, None), Text(")"))),
        ),
    ),
)

CASES = (
    Case("a choice", Constraint("format", texts(("<Yes>", "<No>"))), ("<Yes>", "<No>"),
         ("", "<", "<Y"), ("yes", " <Yes>", "<Yes> ", "<No>\n")),
    Case("one character", Constraint("format", Chars("01234567")), ("0", "7"), ("",), ("8", "00")),
    Case("nothing", Constraint("format", Seq(())), ("",), (), ("a", " ")),
    Case("no repeats", Constraint("format", Seq((Text("a"), Repeat(Text("bc"), 0, 0), Text("d")))),
         ("ad",), ("a",), ("abcd",)),
    Case("an optional part", Constraint("format", Seq((Text("a"), optional(Text("b"))))),
         ("a", "ab"), ("",), ("b", "abb")),
    Case("bounded repeats", Constraint("format", Repeat(Text("ab"), 2, 3)),
         ("abab", "ababab"), ("", "ab", "aba"), ("abababab", "abba")),
    Case("repeats without bound", Constraint("format", Repeat(Chars("ab"), 1, None)),
         ("a", "abba" * 20), ("",), ("c",)),
    Case("items that may be empty",
         Constraint("format", Repeat(OneOf((Text("ab"), Text("a"), Seq(()))), 2, 3)),
         ("", "a", "ab", "aab", "ababab"), (), ("abababab", "b")),
    Case("a name that starts another", Constraint("format", _taxa),
         ("1", "12, 1", "1, 1, 1"), ("", "1, ", "12,"), ("123", "1,2", "1, 2, 2, 2")),
    Case("hostile names", Constraint("format", texts(HOSTILE_NAMES)), HOSTILE_NAMES,
         ("", "new\n", "q"), ("x", "a  b", "é́x", "back")),
    Case("hostile characters", Constraint("format", Repeat(Chars("]^-\\[&~|/\"'\n\té😀"), 1, 4)),
         ("]", "^-", "\\[&~", "&&", "--", "é😀", "\n\t"), ("",), ("a", "]]]]]")),
    Case("a list of hostile names",
         Constraint("format", separated(texts(HOSTILE_NAMES), ", ", 1, len(HOSTILE_NAMES))),
         (", ".join(HOSTILE_NAMES), "a, a b"), ("a, ", "a,"), ("a,,", ", a")),
    Case("recursion", _nested, ("()", "(a)", "((ab)a)", "(aab)"), ("", "(", "((a)"),
         ("a", "(b)", "())")),
    Case("syntax", Constraint("syntax", _smiles_tag, SMILES_RULES),
         ("<smiles>C</smiles>", "<smiles>Clc1ccc(O)cc1</smiles>", "<smiles>C[N+](=O)[O-]</smiles>",
          "<smiles>C%12CC%12</smiles>", "<smiles>[13CH4:7].[Na+]</smiles>",
          "<smiles>F/C=C\\F</smiles>", "<smiles>N[C@@H](C)C(=O)O</smiles>",
          "<smiles>C=1CC=1</smiles>", "<smiles>C(.C)(=O)C</smiles>", "<smiles>[te]</smiles>"),
         ("<smiles>", "<smiles>C(", "<smiles>C=", "<smiles>[N", "<smiles>C%1", "<smiles>C</"),
         ("<smiles></smiles>", "<smiles>C)</smiles>", "<smiles>C(</smiles>", "<smiles>=C</smiles>",
          "<smiles>(C)C</smiles>", "<smiles>C C</smiles>", "<smiles>X</smiles>",
          "<smiles>[Xx]</smiles>", "<smiles>C==C</smiles>", "<smiles>CH4</smiles>", "C")),
    Case("several tags",
         Constraint("syntax", separated(_smiles_tag, "\n", 1, 3), SMILES_RULES),
         ("<smiles>C</smiles>\n<smiles>CC</smiles>",), ("<smiles>C</smiles>\n",),
         ("<smiles>C</smiles><smiles>C</smiles>", "<smiles>C</smiles>\n\n")),
)  # fmt: skip

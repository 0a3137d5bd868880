"""The OpenSMILES grammar as rules, the one source for every decoding backend.

    >>> from rel_batch.constraints import Constraint
    >>> Constraint("syntax", SMILES, SMILES_RULES).matches("Clc1ccc(O)cc1")
    True

Source: the OpenSMILES specification 1.0, section 2 (Grammar). A grammar knows where a bracket, a
branch or a ring bond may stand; that each ring bond closes and that valences are kept is beyond
it (that is the rung `molecule`).

Surprising: numbers are bounded (isotope 3 digits, atom class 4), where the specification has any
number of digits, so that a model cannot write digits until its tokens run out.
"""

from __future__ import annotations

from rel_batch.constraints.expressions import (
    Chars,
    Expression,
    OneOf,
    Repeat,
    Rule,
    Seq,
    Text,
    optional,
    texts,
)

_ELEMENTS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se "
    "Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba Hf Ta W Re Os Ir Pt Au Hg Tl "
    "Pb Bi Po At Rn Fr Ra Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og La Ce Pr Nd Pm Sm Eu Gd Tb "
    "Dy Ho Er Tm Yb Lu Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr"
)
ELEMENTS = tuple(_ELEMENTS.split())
AROMATIC_SYMBOLS = ("b", "c", "n", "o", "p", "s", "se", "as", "te")

_DIGIT = Chars("0123456789")
_NONZERO = Chars("123456789")
_BOND = Chars("-=#$:/\\")

_CHIRAL = Seq(
    (
        Text("@"),
        optional(
            OneOf(
                (
                    Text("@"),
                    Seq((Text("TH"), Chars("12"))),
                    Seq((Text("AL"), Chars("12"))),
                    Seq((Text("SP"), Chars("123"))),
                    Seq((Text("TB"), OneOf((_NONZERO, Seq((Text("1"), _DIGIT)), Text("20"))))),
                    Seq(
                        (
                            Text("OH"),
                            OneOf((_NONZERO, Seq((Chars("12"), _DIGIT)), Text("30"))),
                        )
                    ),
                )
            )
        ),
    )
)


def _charge(sign: str) -> Expression:
    fifteen = OneOf((Seq((Text("1"), Chars("012345"))), _DIGIT))
    return Seq((Text(sign), optional(OneOf((Text(sign), fifteen)))))


_BRACKET_ATOM = Seq(
    (
        Text("["),
        Repeat(_DIGIT, 0, 3),
        OneOf((texts(ELEMENTS), texts(AROMATIC_SYMBOLS), Text("*"))),
        optional(_CHIRAL),
        optional(Seq((Text("H"), optional(_DIGIT)))),
        optional(OneOf((_charge("+"), _charge("-")))),
        optional(Seq((Text(":"), Repeat(_DIGIT, 1, 4)))),
        Text("]"),
    )
)
_ATOM = OneOf((Chars("BCNOPSFIbcnops*"), Text("Cl"), Text("Br"), _BRACKET_ATOM))
_RING_BOND = Seq((optional(Rule("bond")), Rule("ring_number")))
_LINK = optional(OneOf((Rule("bond"), Text("."))))

SMILES: Expression = Rule("chain")
# The rules that use no rule are the tokens of the language: `dialects` keeps each in one piece.
SMILES_RULES: tuple[tuple[str, Expression], ...] = (
    (
        "chain",
        Seq(
            (
                Rule("branched_atom"),
                Repeat(Seq((_LINK, Rule("branched_atom"))), 0, None),
            )
        ),
    ),
    (
        "branched_atom",
        Seq((Rule("atom"), Repeat(_RING_BOND, 0, None), Repeat(Rule("branch"), 0, None))),
    ),
    ("branch", Seq((Text("("), _LINK, Rule("chain"), Text(")")))),
    ("atom", _ATOM),
    ("bond", _BOND),
    ("ring_number", OneOf((_DIGIT, Seq((Text("%"), _DIGIT, _DIGIT))))),
)

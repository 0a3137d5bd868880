"""Leaves that are molecules: what a constraint is built from where a grammar is not enough.

`Molecule` is a leaf (`expressions.Leaf`) like any other, with bytes for states, so that it stands
inside every envelope (`<smiles>`...`</smiles>`, one a line, one tag for each molecule):

    >>> from rel_batch.constraints import Constraint, Seq, Text
    >>> constraint = Constraint("format", Seq((Text("<smiles>"), Molecule(), Text("</smiles>"))))
    >>> constraint.matches("<smiles>CCO</smiles>"), constraint.admits_prefix("<smiles>CC)")
    (True, False)

What the engine's hook needs beyond a leaf:

- `distance(state)`: the number of characters of an ending that the automaton would write itself.
  Every state that `step` returns has one, and the ending of a prefix less its first character is
  the ending of the prefix with that character. So a reply is closed in time if a token is taken
  only while the distance after it fits the tokens left (a character is at most one token, in a
  vocabulary that has every character of `ALPHABET`).
- `token_walk(state, tokens, node)`: the tokens below a node of the vocabulary's trie that may
  come next, with their distances, and the nodes at which a molecule is complete while the token
  goes on with what follows it. What follows a molecule must begin with no letter, digit or other
  character of `ALPHABET`.

`NewMolecules` is the leaf of the assisted rung on REL-C3: molecules of a finite set, each once and
in any spelling (`graphs.py`, `traces.py`). That of REL-C2 and C4 needs RDKit and lives in `chem/`.

How it works: `automaton.py` (what is remembered of a prefix, and the rules), `completion.py` (the
ending, which is the proof that there is one), `walks.py` (the vocabulary). These are also
translated to C (`translate.py`); `native.py` runs what was built.
"""

from rel_batch.constraints.molecules.molecule import ALPHABET, Molecule
from rel_batch.constraints.molecules.new_molecules import NewMolecules

__all__ = ["ALPHABET", "Molecule", "NewMolecules"]

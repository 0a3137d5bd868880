"""Runs an expression over characters: the matcher that every backend is held against.

    >>> from rel_batch.constraints.expressions import Text, OneOf
    >>> machine = Machine(OneOf((Text("<Yes>"), Text("<No>"))), {})
    >>> machine.matches("<No>"), machine.admits_prefix("<Y"), machine.matches("<Y")
    (True, True, False)

A state is a set of continuations; a continuation is a stack of what is still to be read. Stacks
are shared and numbered, states are numbered, and transitions are remembered, so that a second
reading of the same text is one dictionary look-up a character. Time is linear in the text for
the grammars used here, and no recursion depth depends on the text.

Surprising: the memory is bounded by forgetting. `read` starts with empty tables when more than
`max_states` states are known; numbers of states are void then, which `generation` tells.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from rel_batch.constraints.expressions import (
    Chars,
    Expression,
    Leaf,
    OneOf,
    Repeat,
    Rule,
    Seq,
    Text,
)
from rel_batch.constraints.subset import Subset

MAX_STATES = 200_000
_MAX_EXPANSIONS = 100_000
# From here on a choice of texts is read as one leaf: a list of 10,000 names would otherwise be
# 10,000 cells again after each name.
_MANY_TEXTS = 64
# The cost of an expression that no text ends.
_NEVER = 1 << 40

DEAD = 0
_END = 0  # the empty stack


class Machine:
    """Reads characters for one expression. Not thread-safe."""

    def __init__(
        self,
        expression: Expression,
        rules: Mapping[str, Expression],
        *,
        max_states: int = MAX_STATES,
    ) -> None:
        self._expression = expression
        self._max_states = max_states
        self._rules = rules
        self._costs: dict[int, int] = {}
        self._choices: dict[int, Subset | None] = {}
        self._rule_costs = dict.fromkeys(rules, _NEVER)
        self._settle_rule_costs()
        self.generation = 0
        self.forget()

    def forget(self) -> None:
        """Drop every remembered state; numbers handed out before are void."""
        self.generation += 1
        # A cell is (leaf, leaf state, rest of the stack); a frame is (expression, done, rest)
        self._cells: list[tuple[Leaf, Hashable, int]] = []
        self._cell_ids: dict[tuple[int, Hashable, int], int] = {}
        # (`done` counts the items of a Repeat that were read). Expressions are told apart by
        # identity: they live as long as the machine, and hashing them by value would be slow.
        self._frames: list[tuple[Expression, int, int]] = []
        self._frame_ids: dict[tuple[int, int, int], int] = {}
        # Bytes that the shortest reading of a stack needs; the empty stack needs none.
        self._stack_costs: list[int] = [0]
        self._states: list[tuple[frozenset[int], bool]] = [(frozenset(), False)]
        self._state_ids: dict[tuple[frozenset[int], bool], int] = {(frozenset(), False): DEAD}
        self._steps: dict[tuple[int, str], int] = {}
        self._distances: dict[int, int] = {}
        self.start = self._state([self._frame(self._expression, _END)])

    def step(self, state: int, char: str) -> int:
        """The state after `char`; `DEAD` if no accepted string goes on like that."""
        known = self._steps.get((state, char))
        if known is not None:
            return known
        cells, _ = self._states[state]
        advanced: list[tuple[Leaf, Hashable, int]] = []
        for cell in cells:
            leaf, leaf_state, rest = self._cells[cell]
            following = leaf.step(leaf_state, char)
            if following is not None:
                advanced.append((leaf, following, rest))
        result = self._state_of_cells(advanced)
        self._steps[state, char] = result
        return result

    def is_final(self, state: int) -> bool:
        """Whether what was read so far is a whole string of the expression."""
        return self._states[state][1]

    def next_chars(self, state: int) -> frozenset[str] | None:
        """A superset of the characters that lead on from `state`; None for any."""
        found: set[str] = set()
        for cell in self._states[state][0]:
            leaf, leaf_state, _ = self._cells[cell]
            chars = leaf.next_chars(leaf_state)
            if chars is None:
                return None
            found |= chars
        return frozenset(found)

    def distance(self, state: int) -> int:
        """UTF-8 bytes of a text that leads from `state` to the end; 0 where it is final."""
        cells, is_final = self._states[state]
        if is_final:
            return 0
        known = self._distances.get(state)
        if known is None:
            known = min((self._cell_distance(cell) for cell in cells), default=_NEVER)
            self._distances[state] = known
        return known

    def _cell_distance(self, cell: int) -> int:
        leaf, leaf_state, rest = self._cells[cell]
        return leaf.distance(leaf_state) + self._stack_costs[rest]

    def cells(self, state: int) -> list[tuple[int, Leaf, Hashable, int]]:
        """What `state` is inside of: (cell, leaf, the leaf's state, what follows the leaf)."""
        return [(cell, *self._cells[cell]) for cell in sorted(self._states[state][0])]

    def only(self, cells: Iterable[int]) -> int:
        """The state that is inside of these cells alone, and not final."""
        return self._state([], set(cells))

    def after(self, rest: int) -> int:
        """The state in which a leaf has just ended and `rest` follows."""
        return self._state([rest])

    def cost_after(self, rest: int) -> int:
        """`distance` of `after(rest)`."""
        return self._stack_costs[rest]

    @property
    def is_crowded(self) -> bool:
        """Whether so many states are known that it is time to forget."""
        return max(len(self._states), len(self._cells)) > self._max_states

    def read(self, text: str) -> int:
        """The state after `text`, from the start."""
        if self.is_crowded:
            self.forget()
        state = self.start
        step, steps = self.step, self._steps
        for char in text:
            following = steps.get((state, char))
            state = step(state, char) if following is None else following
            if state == DEAD:
                return DEAD
        return state

    def matches(self, text: str) -> bool:
        """Whether `text` is a whole string of the expression."""
        return self.is_final(self.read(text))

    def admits_prefix(self, text: str) -> bool:
        """Whether some string of the expression starts with `text`."""
        return self.read(text) != DEAD

    def _frame(self, expression: Expression, rest: int, done: int = 0) -> int:
        key = (id(expression), done, rest)
        found = self._frame_ids.get(key)
        if found is None:
            self._frames.append((expression, done, rest))
            found = self._frame_ids[key] = len(self._frames)
            cost = self._cost(expression, done) + self._stack_costs[rest]
            self._stack_costs.append(min(cost, _NEVER))
        return found

    def _cost(self, expression: Expression, done: int = 0) -> int:
        """Bytes of the shortest text of `expression`, of which `done` items were read."""
        if isinstance(expression, Repeat):
            remaining = max(0, expression.least - done)
            return min(remaining * self._cost(expression.item), _NEVER) if remaining else 0
        if isinstance(expression, Rule):
            return self._rule_costs[expression.name]
        known = self._costs.get(id(expression))
        if known is None:
            known = self._costs[id(expression)] = self._new_cost(expression)
        return known

    def _new_cost(self, expression: Expression) -> int:
        if isinstance(expression, Seq):
            return min(sum(self._cost(part) for part in expression.parts), _NEVER)
        if isinstance(expression, OneOf):
            return min(self._cost(option) for option in expression.options)
        if isinstance(expression, Leaf):
            return expression.distance(expression.first())
        raise TypeError(f"not an expression: {expression!r}")

    def _settle_rule_costs(self) -> None:
        """Shortest texts of the rules, from "none known" down to the fixed point.

        Rules mostly use later ones or earlier ones, so passes in both directions are few."""
        names = list(self._rules)
        changed = True
        while changed:
            changed = False
            for name in (*reversed(names), *names):
                self._costs.clear()
                cost = self._cost(self._rules[name])
                if cost != self._rule_costs[name]:
                    self._rule_costs[name] = cost
                    changed = True
        self._costs.clear()

    def _choice(self, expression: OneOf) -> Subset | None:
        """A choice of many texts as one leaf, which walks them as a trie; None for any other."""
        key = id(expression)
        if key not in self._choices:
            found = None
            if len(expression.options) >= _MANY_TEXTS:
                names = dict.fromkeys(o.text for o in expression.options if isinstance(o, Text))
                if all(isinstance(option, Text) for option in expression.options):
                    found = Subset(tuple(names), "\0", most=1)
            self._choices[key] = found
        return self._choices[key]

    def _cell(self, leaf: Leaf, leaf_state: Hashable, rest: int) -> int:
        key = (id(leaf), leaf_state, rest)
        found = self._cell_ids.get(key)
        if found is None:
            self._cells.append((leaf, leaf_state, rest))
            found = self._cell_ids[key] = len(self._cells) - 1
        return found

    def _state_of_cells(self, advanced: list[tuple[Leaf, Hashable, int]]) -> int:
        if not advanced:
            return DEAD
        cells: set[int] = set()
        stacks: list[int] = []
        for leaf, leaf_state, rest in advanced:
            chars = leaf.next_chars(leaf_state)
            if chars is None or chars:
                cells.add(self._cell(leaf, leaf_state, rest))
            if leaf.is_final(leaf_state):
                stacks.append(rest)
        return self._state(stacks, cells)

    def _state(self, stacks: list[int], cells: set[int] | None = None) -> int:
        """Expand the tops of `stacks` until each starts with a leaf, and number the result."""
        cells = set() if cells is None else cells
        ends = False
        seen: set[int] = set()
        pending = list(stacks)
        while pending:
            frame = pending.pop()
            if frame == _END:
                ends = True
                continue
            if frame in seen:
                continue
            seen.add(frame)
            if len(seen) > _MAX_EXPANSIONS:
                raise ValueError("the grammar is left-recursive")
            expression, done, rest = self._frames[frame - 1]
            if isinstance(expression, Seq):
                for part in reversed(expression.parts):
                    rest = self._frame(part, rest)
                pending.append(rest)
            elif isinstance(expression, OneOf):
                choice = self._choice(expression)
                if choice is not None:
                    cells.add(self._cell(choice, choice.first(), rest))
                else:
                    pending.extend(self._frame(option, rest) for option in expression.options)
            elif isinstance(expression, Repeat):
                if done >= expression.least:
                    pending.append(rest)
                if expression.most is None or done < expression.most:
                    # Without an upper bound only the lower one needs counting.
                    bound = expression.least if expression.most is None else expression.most
                    again = self._frame(expression, rest, min(done + 1, bound))
                    pending.append(self._frame(expression.item, again))
            elif isinstance(expression, Rule):
                pending.append(self._frame(self._rules[expression.name], rest))
            elif isinstance(expression, (Text, Chars, Leaf)):  # a protocol is slow to check
                first = expression.first()
                cells.add(self._cell(expression, first, rest))
                if expression.is_final(first):
                    pending.append(rest)
            else:
                raise TypeError(f"not an expression: {expression!r}")
        key = (frozenset(cells), ends)
        found = self._state_ids.get(key)
        if found is None:
            self._states.append(key)
            found = self._state_ids[key] = len(self._states) - 1
        return found

"""Finding instances to look at: the first of a source, or those with an id or a key."""

from __future__ import annotations

from rel_batch.errors import ConfigError, DataError, nearest, unknown_name
from rel_batch.instances.hub import HUB
from rel_batch.instances.notation import TAXA_NOTATIONS, TaxaNotation
from rel_batch.instances.read import BUNDLED, instance_files, read_instances
from rel_batch.records import Instance


def notation_named(name: str) -> TaxaNotation:
    """The notation of that name. Raises ConfigError."""
    if name not in TAXA_NOTATIONS:
        raise ConfigError(unknown_name("taxa_notation", name, TAXA_NOTATIONS))
    return name


def find_instances(what: str, source: str, limit: int, notation: str) -> list[Instance]:
    """The first `limit` instances of `what` where it is a source; else all with that id or key.

    An id or key is looked for in `source`; upstream ids collide, so several may have it. Raises
    DataError.
    """
    taxa_notation = notation_named(notation)
    if _is_source(what):
        return list(read_instances(what, taxa_notation=taxa_notation)[:limit])
    found = read_instances(source, taxa_notation=taxa_notation, skip_bad=True)
    named = [instance for instance in found if what in (instance.id, instance.key)]
    if not named:
        guess = nearest(what, [instance.id for instance in found])
        raise DataError(
            f"{what} is neither a file nor the id or key of an instance in {source}",
            hint=(f"did you mean {guess}? " if guess else "") + "--in says where to look",
        )
    return named


def _is_source(what: str) -> bool:
    if what in (BUNDLED, HUB):
        return True
    try:
        return any(True for _ in instance_files([what]))
    except DataError:
        return False

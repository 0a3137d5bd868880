"""Reading, normalising, generating and auditing REL instances.

>>> instances = read_instances("bundled", tasks=["REL-C1"])
>>> {instance.task for instance in instances}, instances.skipped
({'REL-C1'}, ())
"""

from __future__ import annotations

from rel_batch.instances.notation import TAXA_NOTATIONS, TaxaNotation
from rel_batch.instances.read import InstanceSet, instance_of, read_instances

__all__ = [
    "TAXA_NOTATIONS",
    "InstanceSet",
    "TaxaNotation",
    "instance_of",
    "read_instances",
]

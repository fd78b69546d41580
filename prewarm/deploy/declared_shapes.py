"""The shape sets that a record holds, with their arguments in the declared order.

Pure. A manifest is signed over JSON with sorted keys, but the order of keyword arguments is the
order of a graph's inputs and so part of torch's key: a record keeps it as text beside the tables
(``Declaration.recorded()``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: What of a shape set has an order of its own.
_KEYS = frozenset({"inputs", "args", "kwargs"})


def declared_shapes(declared: object) -> list[dict[str, Any]]:
    """Return the shape sets of a recorded declaration, as it declared them; none if it has none."""
    recorded = declared if isinstance(declared, Mapping) else {}
    shapes = recorded.get("shapes")
    if not isinstance(shapes, list):
        return []
    tables = [dict(one) for one in shapes if isinstance(one, Mapping)]
    ordered = _ordered(recorded.get("load"))
    if len(ordered) != len(tables):
        # An older record; its order is what it is.
        return tables
    return [{**table, **form} for table, form in zip(tables, ordered, strict=True)]


def keeps_order(declared: object) -> bool:
    """Tell whether a record knows the declared order of arguments."""
    return isinstance(declared, Mapping) and bool(_ordered(declared.get("load")))


def _ordered(load: object) -> list[dict[str, Any]]:
    text = load.get("arguments") if isinstance(load, Mapping) else None
    if not isinstance(text, str):
        return []
    try:
        found = json.loads(text)
    except ValueError:
        return []
    forms = found if isinstance(found, list) else []
    return [form for form in forms if isinstance(form, dict) and form.keys() <= _KEYS]

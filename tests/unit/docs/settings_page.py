"""How docs/settings.md writes the type and the default of a setting."""

import json
import types
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import SecretStr
from pydantic.fields import FieldInfo

_TYPES: Final[dict[object, str]] = {
    str: "text",
    SecretStr: "secret",
    int: "integer",
    float: "number",
    bool: "true or false",
    Path: "path",
    list[str]: "list of texts",
}


def shown_type(field: FieldInfo) -> str:
    """Write what a setting may be: its type, then the bounds that hold for it."""
    kind: Any = field.annotation
    if isinstance(kind, types.UnionType):
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is Literal:
        return ", ".join(f"`{each}`" for each in get_args(kind))
    return ", ".join([_TYPES[kind], *map(_bound, field.metadata)])


def _bound(limit: object) -> str:
    match limit:
        case Ge(ge=value):
            return f"≥ {value}"
        case Gt(gt=value):
            return f"> {value}"
        case Le(le=value):
            return f"≤ {value}"
        case _:
            raise AssertionError(f"the page has no way to write {limit!r}")


def shown_default(field: FieldInfo) -> str:
    """Write a default as the environment would have it; ``unset`` where there is none."""
    default = field.get_default(call_default_factory=True, validated_data={})
    match default:
        case None:
            return "unset"
        case SecretStr():
            return f"`{default.get_secret_value()}`"
        case bool() | list():
            return f"`{json.dumps(default)}`"
        case _:
            return f"`{default}`"

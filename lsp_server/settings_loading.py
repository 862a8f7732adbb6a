"""From what users write to `Settings`: spellings, layers, and messages about mistakes.

Four sources, each overriding the ones before it, setting by setting:

1. the defaults in `settings.py`,
2. `[tool.ghostwright]` in the workspace root's pyproject.toml: what a project wants,
3. `initializationOptions`: what the editor was set up with,
4. `workspace/configuration`, or a pushed `didChangeConfiguration`: what the user set last.

Editors' sources come later than the project's because they are the user's own. A null
anywhere means "not set here". A mistake costs only the setting it is in.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import annotated_types
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel, to_snake
from pydantic.fields import FieldInfo

from lsp_server.errors import SettingsError
from lsp_server.settings import Settings

SECTION = "ghostwright"
_SHOWN_VALUE_CHARACTERS = 60


@dataclass(slots=True)
class Layer:
    """What one source sets.

    Attributes:
        values: nested by section, snake_case, every leaf valid by itself.
        problems: what could not be used, one error per setting.
    """

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    problems: list[SettingsError] = field(default_factory=list[SettingsError])


def read_layer(raw: object, source: str) -> Layer:
    """Check what a client or a file says, keeping what is usable.

    Args:
        raw: parsed JSON or TOML, of any shape.
        source: where it came from, for messages.
    """
    layer = Layer()
    if raw is None:
        return layer
    if not isinstance(raw, Mapping):
        layer.problems.append(
            SettingsError(f"{source}: {_shown(raw)} is not an object", "give settings by name")
        )
        return layer
    table = cast("Mapping[object, object]", raw)
    if set(table) == {SECTION}:  # some clients send the section with its name around it
        return read_layer(table[SECTION], source)
    _read_section(table, Settings, (), layer, source)
    return layer


def read_pyproject(root: Path | None) -> Layer:
    """The layer of `[tool.ghostwright]`; empty where there is no such file or table."""
    if root is None:
        return Layer()
    path = root / "pyproject.toml"
    try:
        parsed = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Layer()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problem = SettingsError(f"pyproject.toml cannot be read: {error}", "mend it or remove it")
        return Layer(problems=[problem])
    tool = parsed.get("tool")
    table = cast("dict[str, object]", tool).get(SECTION) if isinstance(tool, dict) else None
    return read_layer(table, "pyproject.toml")


def combine(*layers: Layer) -> Settings:
    """The settings of all layers, a later one overriding the ones before it."""
    merged: dict[str, Any] = {}
    for layer in layers:
        _merge(merged, layer.values)
    return Settings.model_validate(merged)


def _read_section(
    table: Mapping[object, object],
    model: type[BaseModel],
    path: tuple[str, ...],
    layer: Layer,
    source: str,
) -> None:
    for written, value in _undotted(table):
        name = _field_name(written, model)
        here = (*path, written)
        if name is None:
            layer.problems.append(_unknown(here, value, model, source))
        elif value is None:
            continue
        elif section := _section_of(model.model_fields[name]):
            if isinstance(value, Mapping):
                nested = cast("Mapping[object, object]", value)
                _read_section(nested, section, (*path, name), layer, source)
            else:
                problem = _error(here, value, source)
                layer.problems.append(SettingsError(problem, "it groups other settings"))
        else:
            _read_leaf(model.model_fields[name], (*path, name), value, layer, source)


def _read_leaf(
    info: FieldInfo, path: tuple[str, ...], value: object, layer: Layer, source: str
) -> None:
    if info.annotation is int and isinstance(value, float) and value.is_integer():
        value = int(value)  # some JSON writers know only floating point
    try:
        checked = _adapter(info).validate_python(value, strict=True)
    except ValidationError:
        layer.problems.append(SettingsError(_error(path, value, source), f"use {allowed(info)}"))
        return
    place = layer.values
    for section in path[:-1]:
        place = place.setdefault(section, {})
    place[path[-1]] = checked


def allowed(info: FieldInfo) -> str:
    """In words, what a setting may be."""
    if get_origin(info.annotation) is Literal:
        return " or ".join(f'"{choice}"' for choice in get_args(info.annotation))
    if info.annotation is bool:
        return "true or false"
    if info.annotation is str:
        return "a text" if not info.metadata else "a text that is not empty"
    kind = "a whole number" if info.annotation is int else "a number"
    return " ".join([kind, *_bounds(info)])


def _bounds(info: FieldInfo) -> Iterator[str]:
    for bound in info.metadata:
        match bound:
            case annotated_types.Ge(low):
                yield f"from {low}"
            case annotated_types.Gt(low):
                yield f"above {low}"
            case annotated_types.Le(high):
                yield f"up to {high}"
            case _:
                pass


def _adapter(info: FieldInfo) -> TypeAdapter[Any]:
    annotation: Any = info.annotation
    for constraint in info.metadata:
        annotation = Annotated[annotation, constraint]
    return TypeAdapter(annotation)


def _undotted(table: Mapping[object, object]) -> Iterator[tuple[str, object]]:
    """The table's entries, with `completion.maxTokens: 8` as `completion: {maxTokens: 8}`."""
    for key, value in table.items():
        first, dot, rest = str(key).removeprefix(f"{SECTION}.").partition(".")
        yield (first, {rest: value}) if dot else (first, value)


def _field_name(written: str, model: type[BaseModel]) -> str | None:
    name = to_snake(written)
    return name if name in model.model_fields else None


def _section_of(info: FieldInfo) -> type[BaseModel] | None:
    annotation = info.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _unknown(
    path: tuple[str, ...], value: object, model: type[BaseModel], source: str
) -> SettingsError:
    known = {to_camel(name): name for name in model.model_fields}
    close = difflib.get_close_matches(to_camel(to_snake(path[-1])), known, n=1)
    remedy = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
    return SettingsError(f"{source}: there is no setting {_dotted(path)}", remedy)


def _error(path: tuple[str, ...], value: object, source: str) -> str:
    return f"{source}: {_dotted(path)} cannot be {_shown(value)}"


def _dotted(path: tuple[str, ...]) -> str:
    written = ".".join((SECTION, *map(to_camel, map(to_snake, path))))
    return written if written.isprintable() and len(written) < 100 else _shown(written)


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) > _SHOWN_VALUE_CHARACTERS:
        text = text[:_SHOWN_VALUE_CHARACTERS] + "..."
    return text


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(name, {}), cast("Mapping[str, Any]", value))
        else:
            into[name] = value

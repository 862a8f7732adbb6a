"""README and its fellows stay true: settings, commands and the names of rooms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lsp_server.settings import Settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def settings_table() -> str:
    """The settings as a Markdown table, straight from the schema."""
    rows = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]

    def add(model: type[BaseModel], path: str) -> None:
        schema: dict[str, Any] = model.model_json_schema(by_alias=True)
        for name, field in model.model_fields.items():
            alias = field.alias or name
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                add(kind, f"{path}{alias}.")
                continue
            default = field.get_default(call_default_factory=True)
            default = str(default).lower() if kind is bool else default
            allowed = describe(schema["properties"][alias])
            rows.append(f"| `{path}{alias}` | `{default!s}` | {allowed} | {field.description} |")

    add(Settings, "")
    return "\n".join(rows).replace("| `` |", "| empty |")


def describe(entry: dict[str, Any]) -> str:
    """What JSON Schema allows, in words."""
    if "enum" in entry:
        return ", ".join(f"`{value}`" for value in entry["enum"])
    if "minimum" in entry:
        most = entry.get("maximum")
        return f"{entry['minimum']} to {most}" if most else f"{entry['minimum']} or more"
    if "exclusiveMinimum" in entry:
        return f"more than {entry['exclusiveMinimum']}, at most {entry['maximum']}"
    words = {"boolean": "`true`, `false`", "string": "text", "array": "list of texts"}
    return words[entry["type"]]


def test_the_settings_table_is_the_schema() -> None:
    [shown] = re.findall(r"<!-- settings: .*? -->\n(.*?)\n?<!-- end of settings -->", README, re.S)
    expected = settings_table()
    assert shown == expected, f"put this into README.md:\n{expected}"


def two_commands() -> list[str]:
    section = README.split("## Two commands")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)\n```", section, re.S)


def test_two_commands_are_two_and_ci_runs_the_second() -> None:
    first, second = two_commands()
    assert first.endswith("ghostwright demo")
    assert (ROOT / ".ci" / "run").read_text("utf-8").rstrip().splitlines()[-1] == second


def test_every_room_that_is_named_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for row in re.findall(r"^\| (`.*?) \|", text, re.M):
        folder = ""
        for name in re.findall(r"`([^`]+)`", row):
            inside = Path(folder) / name
            if "/" in name.rstrip("/"):
                folder = str(Path(name).parent)
                inside = Path(name)
            assert (ROOT / inside).exists(), f"CONTRIBUTING.md names {inside}"


def test_every_command_in_the_readme_exists() -> None:
    from typer.testing import CliRunner

    from lsp_server.cli import build_app

    app = build_app()
    runner = CliRunner()
    shown = set(re.findall(r"`ghostwright ((?:model )?[a-z]+)", README))
    assert shown >= {"serve", "complete", "demo", "model pull"}
    for words in shown:
        result = runner.invoke(app, [*words.split(), "--help"])
        assert result.exit_code == 0, f"ghostwright {words} --help fails"

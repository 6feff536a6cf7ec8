"""The tables of docs/verdict-schema.md, made from the schemas: ``python -m tests.report.schema_page`` writes them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import chaos_mm.report
from tests.house.conftest import ROOT

SCHEMAS = Path(chaos_mm.report.__file__).with_name("schema")
NAMES = ("summary", "verdict", "events")
PAGE = ROOT / "docs/verdict-schema.md"
Schema = Mapping[str, Any]


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return loaded


def written(page: str) -> str:
    """The page with what stands between ``<!-- NAME -->`` and ``<!-- /NAME -->`` made new."""
    for name in NAMES:
        head, _, rest = page.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- /{name} -->")
        assert end, f"{PAGE.name} lacks the marks of {name}"
        page = f"{head}<!-- {name} -->\n{tables(schema(name))}{end}{tail}"
    return page


def tables(whole: Schema) -> str:
    """A table of the document itself, then one for each event or part of it."""
    parts = [(part["properties"]["event"]["const"], part) for part in whole.get("oneOf", ())]
    parts += [(name, part) for name, part in whole["$defs"].items() if "properties" in part]
    texts = [table(whole), *(f"\n`{name}`: {part['description']}\n\n{table(part)}" for name, part in parts)]
    return "\n" + "\n".join(texts) + "\n"


def table(part: Schema) -> str:
    rows = [f"| `{key}`{mark(key, part)} | {kind(told)} | {meaning(told)} |" for key, told in own(part)]
    return "\n".join(["| key | type | meaning |", "|---|---|---|", *rows])


def own(part: Schema) -> Iterator[tuple[str, Schema]]:
    """The keys that say something; what every event has stands in the first table alone."""
    for key, told in part["properties"].items():
        if isinstance(told, dict) and not (key == "event" and "const" in told):
            yield key, told


def mark(key: str, part: Schema) -> str:
    return "" if key in part.get("required", ()) else " (may be absent)"


def kind(told: Schema) -> str:
    """A type in words: "number or null", "array of `lease`", "one of …"."""
    if "$ref" in told:
        return f"`{told['$ref'].rpartition('/')[2]}`"
    if "anyOf" in told:
        return " or ".join(kind(one) for one in told["anyOf"])
    if "const" in told:
        return f"{told['const']}"
    if "enum" in told:
        null = " or null" if None in told["enum"] else ""
        return ("a verdict word" if "passed" in told["enum"] else "string") + null
    types = told["type"] if isinstance(told["type"], list) else [told["type"]]
    words = " or ".join(types)
    if "array" in types:
        return f"array of {kind(told['items'])}"
    inner = told.get("additionalProperties")
    return f"{words} of {kind(inner)}" if isinstance(inner, dict) else words


def meaning(told: Schema) -> str:
    said = str(told.get("description", ""))
    if "enum" in told and "passed" not in told["enum"]:
        said += " " + ", ".join(f"`{one}`" for one in told["enum"]) + "."
    return said.replace("|", "\\|").strip() or "As below."


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

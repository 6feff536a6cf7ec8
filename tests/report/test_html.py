"""The pages: whole, alone, escaped, whatever a run's files hold."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from chaos_mm.report import index_page, run_page
from chaos_mm.report.folder import read
from chaos_mm.report.html import rendered
from chaos_mm.report.junit import junit
from chaos_mm.report.markdown import markdown
from chaos_mm.report.summary import summary
from chaos_mm.report.words import WORDS
from tests.report.conftest import Html
from tests.report.hostile import TEXTS, poisoned
from tests.report.media import texts
from tests.report.samples import AUDIO, HALTED, PASSED
from tests.report.schema_page import NAMES, schema
from tests.report.stories import write
from tests.report.test_folder import SHORT

HARMLESS = re.compile(r"(data:[a-z/]*[;,]|#|\.\./index\.html$|[^:/]+/index\.html$)")


def both(folder: Path) -> list[Html]:
    """Both pages of a folder that holds one run, read strictly; every other output is made as well."""
    run = read(folder)
    markdown([run])
    junit([run])
    json.dumps(summary([run]), allow_nan=False)
    pages = [rendered("run.html", run_page.page(run)), rendered("index.html", index_page.page([run]))]
    return [Html(page.encode("utf-8", "strict").decode()) for page in pages]


def assert_alone(page: Html) -> None:
    """No script, nothing from anywhere else, no handler, and no element that could bring one."""
    allowed = {"style", "link", "meta", "svg", "img", "audio"}
    assert not {tag for tag, _ in page.tags} & {
        "script",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "input",
        "foreignobject",
    }
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        for name in ("src", "href", "xlink:href", "action", "srcset", "poster"):
            assert name not in attributes or (tag in allowed | {"a"} and HARMLESS.match(attributes[name] or "")), (
                attributes
            )


@pytest.mark.parametrize("story", [PASSED, HALTED, AUDIO], ids=lambda story: story.experiment)
def test_the_pages_stand_alone(tmp_path: Path, story: object) -> None:
    for page in both(write(story, tmp_path)):  # type: ignore[arg-type]
        assert_alone(page)
        assert (
            page.named("html") == [{"lang": "en"}] and page.named("title").count({}) == 1 and len(page.named("h1")) == 1
        )
        policy = next(one["content"] for one in page.named("meta") if one.get("http-equiv"))
        assert policy is not None and policy.startswith("default-src 'none'") and "script" not in policy


def test_headings_are_in_order_and_ids_are_unique(reports: Path) -> None:
    for path in reports.glob("**/index.html"):
        page = Html(path.read_text(encoding="utf-8"))
        levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1 and all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))
        ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
        assert len(ids) == len(set(ids))
        for _, attributes in page.tags:
            for name in (attributes.get("aria-labelledby") or "").split():
                assert name in ids


def test_tables_have_captions_and_scopes_and_scroll_by_keyboard(reports: Path) -> None:
    for path in reports.glob("*/index.html"):
        page = Html(path.read_text(encoding="utf-8"))
        assert len(page.named("caption")) == len(page.named("table")) > 0
        assert all(one.get("scope") in ("row", "col") for one in page.named("th"))
        scrolling = [one for one in page.named("div") if "scroll" in (one.get("class") or "").split()]
        assert scrolling and all(one.get("tabindex") == "0" and one.get("role") == "region" for one in scrolling)


def test_every_picture_has_words(reports: Path) -> None:
    for path in reports.glob("**/index.html"):
        page = Html(path.read_text(encoding="utf-8"))
        assert all(one.get("alt") for one in page.named("img"))
        assert all(one.get("role") == "img" or one.get("aria-hidden") == "true" for one in page.named("svg"))
        charts = [one for one in page.named("svg") if one.get("role") == "img"]
        assert len(page.named("desc")) == len(charts) == len([one for one in charts if one.get("aria-labelledby")])


def test_a_page_says_what_the_run_came_to(reports: Path) -> None:
    page = Html((next(reports.glob("*714d20")) / "index.html").read_text(encoding="utf-8"))
    for words in (
        "An objective was not met in its worst window.",
        "deviated: picture-answers: canary_exact is 0.08, not at least 0.5",
        "image_noise (sigma 0.4) changed 57 of 57 selected requests",
        "chaos run --var sigma:float=0.4 experiments/image-noise.json",
        "chaostoolkit-lib 1.44.0",
        "proxy_control_url http://127.0.0.1:8602",
    ):
        assert words in page.text, words
    assert len([one for one in page.named("img") if (one.get("src") or "").startswith("data:image/png")]) == 2


def test_a_run_that_was_killed_says_so(reports: Path) -> None:
    page = Html((next(reports.glob("*ed1234")) / "index.html").read_text(encoding="utf-8"))
    assert "This folder is incomplete." in page.text and "the run left no verdict" in page.text
    assert "not seen to end" in page.text


def test_cut_at_every_fiftieth_byte_there_is_a_page(tmp_path: Path) -> None:
    folder = write(SHORT, tmp_path, verdict=False)
    log = (folder / "events.jsonl").read_bytes()
    for length in range(0, len(log), 50):
        (folder / "events.jsonl").write_bytes(log[:length])
        text = rendered("run.html", run_page.page(read(folder)))
        assert "the run left no verdict" in Html(text).text


@pytest.mark.parametrize("text", TEXTS)
def test_hostile_text_everywhere_stays_text(tmp_path: Path, text: str) -> None:
    folder = write(HALTED, tmp_path)
    for name in ("verdict.json", "events.jsonl"):
        lines = (folder / name).read_text().splitlines() if name == "events.jsonl" else [(folder / name).read_text()]
        (folder / name).write_text("\n".join(json.dumps(poisoned(json.loads(line), text)) for line in lines))
    clean = {tag for page in both(write(HALTED, tmp_path / "clean")) for tag, _ in page.tags}
    for page in both(folder):
        assert_alone(page)
        assert {tag for tag, _ in page.tags} <= clean | {"audio", "del", "ins"}
        assert not re.search("[\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page.text)
        shown = " ".join(text.split())[:40]
        if shown.isprintable():
            assert shown in page.text
    (folder / "verdict.json").unlink()
    assert_alone(both(folder)[0])


def keys(told: object) -> set[str]:
    """Every key that any of the schemas names."""
    if isinstance(told, list):
        return {name for one in told for name in keys(one)}
    if not isinstance(told, dict):
        return set()
    own = set(told.get("properties", {})) if isinstance(told.get("properties"), dict) else set()
    return own | {name for one in told.values() for name in keys(one)}


SCHEMAS = [schema(name) for name in NAMES]
KEYS = st.sampled_from(sorted(keys(SCHEMAS) | {"a", "image_noise", "ok_ratio"}))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        [10**40, -(10**40), 1e308, *WORDS, "fault", "image", "text", "audio", "gte", "lte", "ok_ratio", "a", "."]
    )
    | st.text(max_size=5)
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=8), max_leaves=40
)
NASTY = [None, True, -1, 1e308, 10**400, "", "<b>", {}, [], [[]], [{}], {"a": 1}, {"a": {}}, ["x"], float("nan")]


def places(told: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """The path of every part of a JSON value, itself first."""
    yield path
    inner = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for key, one in inner:
        yield from places(one, (*path, key))


def replaced(told: Any, path: tuple[object, ...], value: object) -> Any:
    """The same value with one part of it replaced."""
    if not path:
        return value
    copy = dict(told) if isinstance(told, dict) else list(told)
    copy[path[0]] = replaced(told[path[0]], path[1:], value)
    return copy


def test_any_one_part_of_a_verdict_may_be_anything(tmp_path: Path) -> None:
    folder = write(replace(SHORT, samples=texts), tmp_path)
    whole = json.loads((folder / "verdict.json").read_text())
    for number, path in enumerate(places(whole)):
        nasty = NASTY[number % len(NASTY)]
        (folder / "verdict.json").write_text(json.dumps(replaced(whole, path, nasty)))
        run = read(folder)
        index_page.page([run])
        assert_alone(Html(rendered("run.html", run_page.page(run))))


def test_any_one_part_of_an_event_may_be_anything(tmp_path: Path) -> None:
    folder = write(SHORT, tmp_path, verdict=False)
    log = folder / "events.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    of_each_kind = {event["event"]: at for at, event in enumerate(events)}
    cases = [(at, path) for at in of_each_kind.values() for path in places(events[at])]
    for number, (at, path) in enumerate(cases):
        changed = [replaced(one, path, NASTY[number % len(NASTY)]) if n == at else one for n, one in enumerate(events)]
        log.write_text("\n".join(map(json.dumps, changed)))
        run = read(folder)
        assert run.word == "error"
        assert_alone(Html(rendered("run.html", run_page.page(run))))


EVENTS = st.sampled_from(schema("events")["properties"]["event"]["enum"])


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.dictionaries(KEYS, ANYTHING, max_size=12),
    st.lists(st.tuples(EVENTS, st.dictionaries(KEYS, ANYTHING, max_size=6))),
)
def test_any_json_makes_pages(
    tmp_path: Path, verdict: dict[str, object], events: list[tuple[str, dict[str, object]]]
) -> None:
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    (tmp_path / "events.jsonl").write_text("\n".join(json.dumps({**told, "event": name}) for name, told in events))
    for page in both(tmp_path):
        assert_alone(page)


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_make_pages(tmp_path: Path, data: bytes) -> None:
    for name in ("verdict.json", "events.jsonl"):
        (tmp_path / name).write_bytes(data)
    assert read(tmp_path).word in WORDS
    both(tmp_path)


def test_every_chart_is_well_formed_on_its_own(reports: Path) -> None:
    page = (next(reports.glob("*b6c8aa")) / "index.html").read_text(encoding="utf-8")
    charts = re.findall(r'<svg viewBox="0 0 \d+ \d+" role="img".*?</svg>', page, re.DOTALL)
    assert len(charts) == 8
    for chart in charts:
        etree.fromstring(chart.encode())
